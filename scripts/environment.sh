# Sourced by the scripts beside it: makes ./.venv once and puts it on PATH.
# A script that needs an extra of pyproject.toml sets `extra` before; its own arguments stay its own.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "$0: $python is missing or older than Python 3.11; install it, or name one with PYTHON=..." >&2
    exit 3
fi

# A half-made environment has no stamp, and so is completed the next time.
stamp=.venv/installed${extra:+-$extra}
wanted=$(cat constraints.txt pyproject.toml | cksum)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    [ -x .venv/bin/python ] || "$python" -m venv .venv
    echo "Installing into $root/.venv; the first time takes some minutes ..." >&2
    # torch first and alone, with its pin: a looser requirement may pick a build for another device.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
        "$(grep '^torch==' constraints.txt)" >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
        -c constraints.txt -e ".${extra:+[$extra]}" >&2
    echo "$wanted" >"$stamp"
fi
PATH=$root/.venv/bin:$PATH
export PATH
