"""What a kernel or an operator does, and in which precision, by its name.

Names follow no standard: the rules are ordered, the first that fits decides,
and what none knows is `other`.
"""

from __future__ import annotations

import re

KINDS = (
    "matmul",
    "attention",
    "convolution",
    "normalisation",
    "elementwise",
    "reduction",
    "optimizer",
    "copy",
    "communication",
    "other",
)

_COMMUNICATION = (
    r"nccl|rccl|oneccl|nvshmem|(?:one|two)_shot_all_reduce|multimem_all|cross_device_reduce"
)
_ATTENTION = r"flash|fmha|attention|_attn|attn_|sdpa|mha_[fb]wd|bwd_kernel_d[kq]|flex_att"
_NORMALISATION = (
    r"(?:layer|rms|batch|group|instance)_?norm|gammabeta|rowwisemoments|\bbn_[fb]w|spatialbn"
)
_CONVOLUTION = (
    r"conv(?!er)|wgrad|dgrad|fprop|implicit_gemm|winograd|igemm_|scudnn|im2col|col2im"
    r"|nchwtonhwc|nhwctonchw|fft2d|gcgemm|cask_cudnn"
)
_MATMUL = (
    r"gemm|gemv|cublas|cutlass|nvjet|cijk_|xmma|wgmma|splitkreduce|matmul|\bdot_kernel|epilogue"
)
_REDUCTION = (
    r"reduce|softmax|nll_loss|cross_entropy|\bnorm|lpnorm|cumsum|scan|argm(?:ax|in)|pool(?!ed)"
)
_COPY = r"copy|memcpy|memset|rocclr_fill|catarray"
_OTHER = r"scatter|gather|embedding|index|sort|topk|unique|searchsorted"
_ELEMENTWISE = r"elementwise|pointwise|vectorized|unrolled|fillfunctor|dropout|clamp|activation"

_KERNEL_RULES = (
    ("communication", _COMMUNICATION),
    ("elementwise", r"^triton_(?:poi|for)_"),
    ("attention", _ATTENTION),
    ("other", r"split_embedding|embedding_(?:forward|backward)"),
    ("optimizer", r"(?<![a-z])(?:fused_?)?(?:adam|adamw|sgd|lamb|lion|adagrad|rmsprop|adafactor)"),
    ("normalisation", _NORMALISATION),
    ("reduction", r"^triton_(?:red|per)_"),
    ("convolution", _CONVOLUTION),
    ("matmul", _MATMUL + r"|^triton_tem_|^triton_mm"),
    ("copy", _COPY),
    ("other", _OTHER),
    ("elementwise", _ELEMENTWISE),
    ("reduction", _REDUCTION),
    ("elementwise", r"multi_tensor_apply"),
)
_OPERATOR_RULES = (
    ("communication", r"^(?:nccl|gloo|mpi|ucc|c10d|_c10d_functional):|^record_param_comms"),
    ("attention", _ATTENTION),
    ("optimizer", r"_fused_(?:adam|sgd|adagrad)|^optimizer\.step"),
    ("normalisation", _NORMALISATION),
    ("convolution", r"conv(?!er)"),
    ("matmul", r"::(?:t?addmm|mm|bmm|baddbmm|addmv|mv|dot|linear|matmul|einsum|addbmm)\b|gemm"),
    ("copy", r"::(?:copy_|_?to(?:_copy)?|clone|contiguous|cat|stack)$|memcpy"),
    (
        "reduction",
        r"::(?:_?(?:log_)?softmax|sum|mean|max|min|arg\w+|norm|linalg_\w*norm|cumsum)"
        r"|nll_loss|cross_entropy|pool|_foreach_norm",
    ),
    (
        "other",
        r"index|embedding|gather|scatter|sort|topk|select|slice|::(?:view|t|transpose"
        r"|as_strided|expand|reshape|permute|unsqueeze|squeeze|detach|empty\w*|resize_"
        r"|result_type|resolve_\w+|alias|unbind|split|chunk|narrow|item|_local_scalar_dense)",
    ),
    ("elementwise", r"^aten::"),
)
_COMPILED_KERNELS = [(kind, re.compile(rule)) for kind, rule in _KERNEL_RULES]
_COMPILED_OPERATORS = [(kind, re.compile(rule)) for kind, rule in _OPERATOR_RULES]

# The optimizer's own kernels have the names of any elementwise work: where they are
# launched tells.
OF_THE_OPTIMIZER = frozenset({"elementwise", "reduction", "copy", "other"})

_PRECISIONS = [
    (precision, re.compile(rule))
    for precision, rule in (
        ("fp8", r"fp8|e4m3|e5m2|float8|nvjet_qq"),
        ("bf16", r"bf16|bfloat16|nvjet_tst|cijk_\w*?_b[bs]s_|_bbs_|_bss_"),
        (
            "fp16",
            r"fp16|f16(?!\d)|half|hgemm|[hs]884|s?16816(?!tf32)|hmma|nvjet_hsh|_h[hs]s_",
        ),
        ("tf32", r"tf32|s1688gemm|nvjet_sss"),
        ("int8", r"int8|[sui]8_|imma|igemm_int"),
        ("fp64", r"double|dgemm|fp64|f64|_db_"),
        ("fp32", r"float|sgemm|scudnn|f32|fp32|gcgemm|_sb_"),
    )
]


def kind_of_kernel(name: str) -> str:
    """One of KINDS.

    >>> kind_of_kernel("ampere_sgemm_128x64_nn"), kind_of_kernel("triton_poi_fused_add_0")
    ('matmul', 'elementwise')
    """
    return _first(_COMPILED_KERNELS, _base(name).lower())


def kind_of_operator(name: str) -> str:
    """One of KINDS.

    >>> kind_of_operator("aten::addmm"), kind_of_operator("aten::native_layer_norm")
    ('matmul', 'normalisation')
    """
    return _first(_COMPILED_OPERATORS, name.lower())


def precision_of_kernel(name: str) -> str:
    """The precision that a kernel's name states, the lowest of several; else `unknown`.

    >>> precision_of_kernel("ampere_bf16_s16816gemm_bf16_128x64_tn")
    'bf16'
    """
    return _first(_PRECISIONS, _base(name).lower(), "unknown")


def without_architecture(name: str) -> str:
    """The same name for the same kernel of several generations of devices.

    >>> without_architecture("volta_sgemm_128x64_nn"), without_architecture("sm80_xmma_gemm")
    ('sgemm_128x64_nn', 'xmma_gemm')
    """
    return re.sub(r"\b(?:maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell|sm\d+)_", "", name)


def _first(rules: list[tuple[str, re.Pattern[str]]], text: str, default: str = "other") -> str:
    return next((name for name, rule in rules if rule.search(text)), default)


def _base(name: str) -> str:
    """A C++ name without its parameters, whose types would mislead."""
    name = name.replace("(anonymous namespace)::", "").replace("{lambda()", "{lambda")
    return name.split("(", 1)[0]
