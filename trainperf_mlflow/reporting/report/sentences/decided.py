"""Why it was decided so: the rules, the guards above them, and what the intervals say."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainperf_mlflow.decisions.reasons import REASONS

_REASONS = {reason.en: reason.zh for reason in reversed([*REASONS.values()])}

_RULES = {
    # training, optimization
    "{why:t}: time gain {gain:n} ms{work:work} (at least {least:n} wanted), {memory:t}, throughput "
    "gain {rate:n} samples/s (at least {floor:n} wanted)": (
        "{why}：时间收益 {gain} ms{work}（要求至少 {least}），{memory}，"
        "吞吐收益 {rate} 样本/秒（要求至少 {floor}）"
    ),
    "{why:t}: time gain {gain:n} ms{work:work} (at least {least:n} wanted), {memory:t}": (
        "{why}：时间收益 {gain} ms{work}（要求至少 {least}），{memory}"
    ),
    "memory gain {gain:n} MiB (at least {least:n} wanted)": (
        "内存收益 {gain} MiB（要求至少 {least}）"
    ),
    "{gap:t}, which counts as no gain": "{gap}，按没有收益计",
    # goal
    "the gain costs too much {what:both}": "为收益付出的{what}代价过大",
    "{metric:code} {before:n} -> {after:n}{work:work} is {better:t} "
    "(at least {least:n} % wanted)": (
        "{metric} {before} -> {after}{work}，{better}（要求至少 {least} %）"
    ),
    "{gain:n} % better": "改善 {gain} %",
    "{gain:n} % worse": "变差 {gain} %",
    "the same": "相同",
    "{metric:code} was not measured in the same way on both sides, so whether the goal is met is "
    "not known": "{metric} 没有在两侧以同样的方式测量，无法判断目标是否达成",
    "{what:what} could not be compared": "{what}无法比较",
    "costs {cost:n} % in {what:what} (at most {most:n} % allowed)": (
        "{what}增加 {cost} %（至多允许 {most} %）"
    ),
    "saves {gain:n} % of {what:what}": "{what}节省 {gain} %",
    # quality
    "quality was not checked, because {gap:t}": "质量未检验：{gap}",
    "quality was not checked: {gap:t}": "质量未检验：{gap}",
    "there is no eval loss on both sides": "并非两侧都有验证损失",
    "the eval loss was not taken on real text": "验证损失不是在真实文本上测得的",
    "another {keys:codes} means another validation text": "{keys} 不同，验证文本也就不同",
    "the eval loss is the same": "验证损失相同",
    "the eval loss is lower by {change:n}": "验证损失降低 {change}",
    "the eval loss is higher by {change:n} (at most {most:n} allowed)": (
        "验证损失升高 {change}（至多允许 {most}）"
    ),
    # memory that cannot be compared
    "peak memory was not measured ({variants})": "峰值内存未测量（{variants}）",
    "peak memory was measured in different ways ({one:code} and {other:code})": (
        "峰值内存的测量方式不同（{one} 与 {other}）"
    ),
}

_BUDGET = {
    "{count:n} of {all:n} variants| keep the budget": "{all} 个变体中有 {count} 个满足预算",
    "best is {best}|, so no other variant within the budget takes less memory and nothing is "
    "saved": ("最优为 {best}，预算之内没有占用更少内存的变体，因此没有节省"),
    "best is {best}|, which saves {saved:n} MiB (at least {least:n} wanted)| and keeps {kept:n} "
    "of the throughput (at least {most:n} wanted)": (
        "最优为 {best}，节省 {saved} MiB（要求至少 {least}），保留 {kept} 的吞吐（要求至少 {most}）"
    ),
    "best is {best}|, which saves {saved:n} MiB (at least {least:n} wanted)": (
        "最优为 {best}，节省 {saved} MiB（要求至少 {least}）"
    ),
    "best is {best}": "最优为 {best}",
    "{count:n} {what:counted}": "{count} 个变体{what}",
    "its reserved memory exceeds the cap although the allocated fits": (
        "已分配内存未超限，但预留内存超过上限"
    ),
    "{why:t}| (its reserved memory exceeds the cap although the allocated fits)": (
        "{why}（已分配内存未超限，但预留内存超过上限）"
    ),
    "it keeps the budget, but is no memory strategy": "满足预算，但不是显存策略",
    "it is a memory strategy within the budget, and worth its cost": (
        "是预算之内的显存策略，且代价可以接受"
    ),
    "saves {saved:n} MiB (at least {least:n} wanted)": "节省 {saved} MiB（要求至少 {least}）",
    "keeps {kept:n} of the throughput (at least {least:n} wanted)": (
        "保留 {kept} 的吞吐（要求至少 {least}）"
    ),
    "breaks the budget: {limits:t}": "不满足预算：{limits}",
    "keeps the budget: {limits:t}": "满足预算：{limits}",
    "cannot be judged: {why:t}": "无法判断：{why}",
    "{variant} |breaks the budget: {limits:t}": "{variant} 不满足预算：{limits}",
    "{variant} |keeps the budget: {limits:t}": "{variant} 满足预算：{limits}",
    "{variant} |cannot be judged: {why:t}": "{variant} 无法判断：{why}",
    "{variant} |ran out of memory": "{variant} 内存不足",
    "memory {memory:n} MiB (at most {most:n})": "内存 {memory} MiB（至多 {most}）",
    "throughput {rate:n} samples/s (at least {least:n})": "吞吐 {rate} 样本/秒（至少 {least}）",
    "eval loss {loss:n} (at most {most:n})": "验证损失 {loss}（至多 {most}）",
    "but the allocator reserved {reserved:n} MiB, which exceeds the cap, so a device of that size "
    "may still run out of memory": (
        "但分配器预留了 {reserved} MiB，超过上限，该容量的设备仍可能内存不足"
    ),
    "it did not succeed (status {status:status})": "运行没有成功（状态：{status}）",
    "the change was not in effect": "改动没有生效",
    "it has no name": "没有名称",
    "its name is given twice": "名称重复",
    "its loss is NaN or infinite": "其损失为 NaN 或无穷大",
    "its memory was measured in another way": "其内存的测量方式不同",
    "{metrics:codes} was not measured": "{metrics} 没有测量",
}

_GUARDS = {
    "the candidate {failure:failure}": "候选{failure}",
    "the candidate {failure:failure}|: {error:s}": "候选{failure}：{error}",
    "the candidate {failure:failure} within {steps:n} steps of training with seed {seeds:any}, "
    "with which the baseline did not: {error:s}": (
        "候选在种子 {seeds} 的 {steps} 步训练之内{failure}，基线用同样的种子则没有：{error}"
    ),
    "published as {status:status}": "原报告中的状态：{status}",
    "no repeat of it ran": "没有任何一次重复运行过",
    "the change was not in effect|, so what was measured says nothing about it": (
        "改动没有生效，测量值不能说明问题"
    ),
    "the change was not in effect| ({detail:s})|, so what was measured says nothing about it": (
        "改动没有生效（{detail}），测量值不能说明问题"
    ),
    "without it: {rest:text}": "若不计此项：{rest}",
    "{failed:n} of {all:n} repeats did not succeed": "{all} 次重复中有 {failed} 次没有成功",
    "{failed:n} of {all:n} repeats did not succeed| ({error:s})": (
        "{all} 次重复中有 {failed} 次没有成功（{error}）"
    ),
    "what succeeded: {rest:text}": "成功的部分：{rest}",
    # a close
    "qualified: |none": "合格的候选：无",
    "qualified: {variants:any}": "合格的候选：{variants}",
    "{verdict:gates} {codes:codes}": "{verdict}：{codes}",
    "passes every gate, with all evidence": "证据齐全，通过全部门槛",
}

_INTERVALS = {
    "no pair of blocks was complete": "没有一对完整的测量块",
    "{pairs:t} are too few for an interval of time": "{pairs}太少，无法给出时间区间",
    "time is {direction:t}: {saved:n} % saved [{low:n}, {high:n}] by {pairs:t}": (
        "时间{direction}：节省 {saved} % [{low}, {high}]（{pairs}）"
    ),
    "faster": "更快",
    "slower": "更慢",
    "the same within {margin:n}": "相同（{margin} 以内）",
    "undecided": "未定",
    "{pairs:n} pairs of {processes:t}": "{processes}的 {pairs} 对测量块",
    "1 process pair": "1 对进程",
    "{count:n} process pairs": "{count} 对进程",
    "measure again": "请重新测量",
    "more repeats would settle it": "增加重复次数即可定论",
    "about {pairs:n} more pairs ({time:t}) would settle it": (
        "大约再测 {pairs} 对测量块（约 {time}）即可定论"
    ),
    "{count:n} s": "{count} 秒",
    "{count:n} minutes": "{count} 分钟",
    "{count:n} hours": "{count} 小时",
    "more pairs on this machine as it is would not settle it; measure when it is quiet": (
        "在这台机器的现状下再多测也无法定论，请在空闲时重新测量"
    ),
    "find what stalls, or measure when the machine is quiet": (
        "请找出停顿的原因，或在机器空闲时重新测量"
    ),
    "this machine is too noisy for a verdict: {shown:t}": "机器噪声过大，不足以得出结论：{shown}",
    "measure when it is quiet": "请在空闲时重新测量",
    "by its point values: {rest:text}": "仅按点值：{rest}",
    "some steps of the {who:role} stall: by its mean step it is {slower:n} % slower than by its "
    "usual one": "{who}的部分步骤出现停顿：按均值比其通常的单步慢 {slower} %",
    "the plain means say {ms:n} ms {way:way}, the pairs measured side by side {pct:n} % "
    "{other:way}; the pairs count": (
        "均值显示{way} {ms} ms，并排测量的配对显示{other} {pct} %；以配对为准"
    ),
    # calibration and probe
    "the pairs are too few for an interval; give more --repeats": (
        "配对太少，无法给出区间；请增加 --repeats"
    ),
    "identical code was measured as {way:way} ({pct:n} %)": "相同代码被测为{way}（{pct} %）",
    "identical code may look {pct:n} % different": "相同代码看起来可能相差 {pct} %",
    "what identical code differs by is known, and later studies here stand on it": (
        "已测得相同代码的差异范围，此后在本机的研究以此为准"
    ),
    "nothing was measured ({outcome:t})": "没有测得任何结果（{outcome}）",
    "a probe measures without a baseline, so there is nothing to compare and to decide": (
        "仅测量没有基线，因此没有可比较或判定的内容"
    ),
}

DECIDED: Mapping[str, str] = MappingProxyType(
    {**_REASONS, **_RULES, **_BUDGET, **_GUARDS, **_INTERVALS}
)
