"""Captions above pictures, and video files made of pictures."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from ..errors import ShoalError
from ..files import atomic
from .draw import COLOURS, FINER, WIDTH, font

# limits of the width of a picture that an environment draws itself
SMALLEST = 400
LARGEST = 1200
SAMPLED = 100  # number of first pictures from which the colours of a GIF are chosen
COMMON = 32  # of the 256 colours of a GIF, those taken exactly from the picture


def fitted(picture: np.ndarray) -> np.ndarray:
    """Scale a tiny picture up, or a huge one down, by a whole factor."""
    image = Image.fromarray(np.ascontiguousarray(picture))
    if image.width < SMALLEST:
        times = -(-SMALLEST // image.width)
        return np.asarray(
            image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST)
        )
    return np.asarray(image.reduce(-(-image.width // LARGEST)))


def captioned(
    picture: np.ndarray, title: str, step: str, returns: dict[str, float], colours: dict[str, str]
) -> np.ndarray:
    """Put a strip above a picture: title, step, and each team's return so far in its colour."""
    width = picture.shape[1]
    point = FINER * min(max(width / WIDTH, 0.75), 1.5)
    strip = Image.new("RGB", (width * FINER, round(56 * point / FINER) * FINER), COLOURS["field"])
    pen = ImageDraw.Draw(strip)
    bold = font(round(14 * point), True)
    plain = font(round(13 * point))
    margin = 14 * point
    top = 17 * point
    low = 40 * point
    pen.text((strip.width - margin, top), step, font=plain, fill=COLOURS["soft"], anchor="rm")
    room = strip.width - 3 * margin - plain.getlength(step)
    pen.text((margin, top), _cut(title, bold, room), font=bold, fill=COLOURS["ink"], anchor="lm")
    x = margin
    for team, value in returns.items():
        told = f"{team}  {value:.2f}".replace("-", "−")
        dot = 5 * point if team in colours else 0
        if x + 3 * dot + plain.getlength(told) > strip.width - margin:
            pen.text((x, low), "…", font=plain, fill=COLOURS["soft"], anchor="lm")
            break
        if dot:
            pen.ellipse((x, low - dot, x + 2 * dot, low + dot), fill=colours[team])
        pen.text((x + 3 * dot, low), told, font=plain, fill=COLOURS["ink"], anchor="lm")
        x += 3 * dot + plain.getlength(told) + 24 * point
    pen.line(
        [(0, strip.height - 1), (strip.width, strip.height - 1)], fill=COLOURS["faint"], width=FINER
    )
    return np.concatenate([np.asarray(strip.reduce(FINER)), picture])


def _cut(text: str, letters: Any, room: float) -> str:
    while letters.getlength(text) > room and len(text) > 2:
        text = text[:-2].rstrip() + "…"
    return text


def format_for(path: str) -> str:
    """The suffix of a video's path, if that format can be written here."""
    ending = Path(path).suffix.lower()
    if ending not in WRITERS:
        raise ShoalError(
            f"a video ends in {' or '.join(WRITERS)}, not in {ending or 'nothing'}: {path}"
        )
    if ending == ".mp4" and not _ffmpeg():
        raise ShoalError(
            "an .mp4 needs imageio-ffmpeg: pip install 'shoal[video]', or write a .gif, which"
            " needs nothing"
        )
    return ending


def best_format() -> str:
    """`.mp4` where it can be written, else `.gif`."""
    return ".mp4" if _ffmpeg() else ".gif"


def save(path: Path, frames: Iterable[np.ndarray], fps: int) -> None:
    """Write a video atomically. Frames are `[H,W,3]` uint8, resized to the size of the first."""
    ending = format_for(str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as temporary:
            WRITERS[ending](temporary, _alike(frames), fps)
    except OSError as error:
        raise ShoalError(
            f"the video {path} cannot be written ({error.strerror or error})"
        ) from None


def _ffmpeg() -> str:
    """Path of ffmpeg, or "" if there is none."""
    try:
        import imageio_ffmpeg

        return imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        return ""


def _alike(frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Resize all frames to the size of the first, rounded down to even numbers, as MP4 requires."""
    size = None
    for frame in frames:
        size = size or (frame.shape[1] // 2 * 2, frame.shape[0] // 2 * 2)
        small = frame[: size[1], : size[0]]
        fits = small.shape[1::-1] == size
        yield np.ascontiguousarray(
            small if fits else np.asarray(Image.fromarray(frame).resize(size))
        )


def _mp4(path: Path, frames: Iterator[np.ndarray], fps: int) -> None:
    first = next(frames)
    raw = [
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-s",
        f"{first.shape[1]}x{first.shape[0]}",
        "-r",
        str(fps),
        "-i",
        "-",
    ]
    film = [
        "-c:v",
        "libx264",
        "-crf",
        "20",
        "-pix_fmt",
        "yuv420p",
        "-movflags",
        "+faststart",
        str(path),
    ]
    with tempfile.TemporaryFile() as complaints:
        # Not with imageio-ffmpeg's writer: it forks from Python, which is unsafe beside JAX's
        # threads.
        ffmpeg = subprocess.Popen(
            [_ffmpeg(), "-y", "-loglevel", "error", *raw, *film],
            stdin=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,  # keeps Ctrl-C from ffmpeg
        )
        assert ffmpeg.stdin
        try:
            with contextlib.suppress(BrokenPipeError), ffmpeg.stdin as pipe:
                for frame in chain([first], frames):
                    pipe.write(frame.tobytes())
        finally:
            code = ffmpeg.wait()
        if code:
            complaints.seek(0)
            raise OSError(
                " ".join(complaints.read().decode(errors="replace").split())[-300:]
                or f"ffmpeg ended with {code}"
            )


def _gif(path: Path, frames: Iterator[np.ndarray], fps: int) -> None:
    early = list(islice(frames, SAMPLED))
    palette = _palette(Image.fromarray(np.concatenate(early[:: -(-len(early) // 6)])))
    images = (
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        for frame in chain(early, frames)
    )
    first = next(images)
    first.save(
        path,
        save_all=True,
        append_images=images,
        duration=round(1000 / fps),
        loop=0,
        optimize=False,
    )


def _palette(picture: Image.Image) -> Image.Image:
    """A palette of the most common colours, exactly, and of approximations to all others."""
    common = sorted(picture.getcolors(picture.width * picture.height) or (), reverse=True)[:COMMON]
    near = picture.quantize(256 - COMMON, Image.Quantize.MEDIANCUT).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*(part for _, rgb in common for part in rgb), *near])  # type: ignore[union-attr]
    return palette


WRITERS: dict[str, Callable[[Path, Iterator[np.ndarray], int], None]] = {".mp4": _mp4, ".gif": _gif}
