"""Proves the image without a container engine: ``make image-check``.

Runs the Dockerfile's own RUN lines in a temporary folder, then the entry point of its last stage as
a hardened cluster would: an arbitrary UID with group 0, no capabilities, no home, an empty
environment, a working directory it cannot write. It checks what the image promises:

- it serves, and how soon (DESIGN section 10: 2 s);
- SIGTERM ends it within 2 s with 0 or 143, early and late, as PID 1 too (case P03);
- it leaves no file behind (case P12);
- the installed tree stays under 120 MB.

Not proven here: the base image itself, and that the kernel mounts the root read-only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import dockerfile
from confined import Broken, Image, check_process

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
SIZE_BUDGET = 120e6  # bytes
INTERPRETERS = ("python3.13", "python3.12", "python3.11", "python3.14", "/usr/bin/python3")


def main() -> int:
    """Run every step; print what was measured; return the exit status."""
    stages = dockerfile.read(ROOT / "Dockerfile")
    with _workspace() as work:
        try:
            python = _interpreter(work)
            image = _build(stages, work, python)
            _check_size(image)
            check_process(image, work)
        except Broken as broken:
            print(f"image: BROKEN: {broken}", file=sys.stderr)
            return 1
    print("image: every step of the Dockerfile ran, and every promise held")
    return 0


@contextlib.contextmanager
def _workspace() -> Iterator[Path]:
    """Give a folder that any UID may read."""
    work = Path(tempfile.mkdtemp(prefix="vllm-scaler-image."))
    work.chmod(0o755)
    try:
        yield work
    finally:
        shutil.rmtree(work)


# --- the build ------------------------------------------------------------------------------------


def _interpreter(work: Path) -> Path:
    """Make the folder with ``python`` and pip that stands for the base image's."""
    for name in INTERPRETERS:
        ask = "import sys; assert sys.version_info >= (3, 11); print(sys.base_prefix)"
        found = (
            subprocess.run([name, "-c", ask], capture_output=True, text=True, check=False)
            if (shutil.which(name))
            else None
        )
        if found is None or found.returncode or not _open_to_all(Path(found.stdout.strip())):
            continue
        venv = work / "python"
        subprocess.run([name, "-m", "venv", venv], check=True)
        version = subprocess.run(
            [venv / "bin/python", "--version"], capture_output=True, text=True, check=True
        ).stdout.strip()
        print(f"image: {version} stands for the base image's Python")
        return venv / "bin"
    raise Broken("no Python 3.11 or newer that every user may run")


def _open_to_all(path: Path) -> bool:
    """Tell whether any UID can reach ``path``; without root, only ours matters."""
    return os.geteuid() != 0 or all(
        part.stat().st_mode & 0o001 for part in (path, *path.parents) if part.exists()
    )


def _build(stages: tuple[dockerfile.Stage, ...], work: Path, python: Path) -> Image:
    """Replay the stages, each in a folder that stands for its root; return the last one's image."""
    roots: dict[str, Path] = {}
    copied: list[Path] = []
    for number, stage in enumerate(stages):
        root = roots[stage.name or str(number)] = work / f"stage-{number}"
        cwd = root
        cwd.mkdir()
        for step in stage.instructions:
            if step.name == "WORKDIR":
                cwd = root / step.text.lstrip("/")
                cwd.mkdir(parents=True, exist_ok=True)
            elif step.name == "COPY":
                source = roots.get(step.flags.get("from", ""), ROOT)
                copied = [_copy(source, cwd, root, step)]
            elif step.name == "RUN":
                _run(step, cwd, python)
    last = stages[-1]
    return Image(
        app=copied[0],
        command=_exec(last, "ENTRYPOINT") + _exec(last, "CMD"),
        environment=_environment(last, root) | {"PATH": str(python)},
    )


def _copy(source: Path, cwd: Path, root: Path, step: dockerfile.Instruction) -> Path:
    *names, to = step.words
    target = root / to.lstrip("/") if to.startswith("/") else cwd / to
    for name in names:
        origin = source / name.lstrip("/")
        if origin.is_dir():
            ignore = shutil.ignore_patterns("__pycache__") if source == ROOT else None
            shutil.copytree(origin, target, ignore=ignore, dirs_exist_ok=True)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(origin, target)
    return target


def _run(step: dockerfile.Instruction, cwd: Path, python: Path) -> None:
    print(f"image: RUN {step.text}", flush=True)
    # The machine's own settings of pip (where packages come from) stay; nothing else does.
    kept = {
        k: v
        for k, v in os.environ.items()
        if k.startswith(("PIP_", "SSL_")) or "PROXY" in k.upper()
    }
    environment = kept | {"PATH": f"{python}:/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        ["/bin/sh", "-ec", step.text],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Broken(
            f"Dockerfile line {step.line} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


def _exec(stage: dockerfile.Stage, name: str) -> tuple[str, ...]:
    step = stage.last(name)
    if step is None or step.exec_form is None:
        raise Broken(f"{name} is missing or not in exec form")
    return step.exec_form


def _environment(stage: dockerfile.Stage, root: Path) -> dict[str, str]:
    """Return the stage's ENV, with paths moved to where the stage really lies."""
    given = {name: value for step in stage.all("ENV") for name, value in step.pairs.items()}
    return {
        name: str(root / value.lstrip("/")) if value.startswith("/") else value
        for name, value in given.items()
    }


def sizes_of(tree: Path) -> dict[str, int]:
    """Return the bytes of the files below each entry of ``tree``."""
    sizes: dict[str, int] = {}
    for file in tree.rglob("*"):
        if file.is_file():
            top = file.relative_to(tree).parts[0]
            sizes[top] = sizes.get(top, 0) + file.stat().st_size
    return sizes


def _check_size(image: Image) -> None:
    sizes = sizes_of(image.app)
    total = sum(sizes.values())
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:5]
    print(
        f"image: installed tree {total / 1e6:.1f} MB (budget {SIZE_BUDGET / 1e6:.0f} MB); largest: "
        + ", ".join(f"{name} {size / 1e6:.1f}" for name, size in largest)
    )
    if total > SIZE_BUDGET:
        raise Broken("the installed tree is over its budget")


if __name__ == "__main__":
    sys.exit(main())
