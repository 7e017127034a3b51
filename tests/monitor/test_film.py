"""Watching: every game has a picture, a film is what an evaluation plays, and its file can be read
back."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache, cached_property

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from helpers import opened
from PIL import Image, ImageColor

from shoal import envs
from shoal.api import Run
from shoal.cli.main import main
from shoal.config.config import Config
from shoal.envs import GAMES, Game, Hosted
from shoal.errors import ShoalError
from shoal.monitor import film
from shoal.monitor.watch import Watching, watch
from shoal.render import Disc, Scene, video
from shoal.render.draw import draw, team_colours
from shoal.run.trainer import train
from shoal.store.player import Player
from shoal.types import Discrete, Spec

TINY = {"hidden": 8, "layers": 1}


@cache
def guesser(env: str, options: tuple = ()) -> Player:
    config = Config.build(
        env,
        {team: ("random", {}) for team in envs.make(env, **dict(options)).teams},
        dict(options),
        {},
    )
    return Player(config, dict.fromkeys(config.algorithms, ()), 0)


def shot(player: Player, episodes: int = 1, seed: int = 0) -> list[film.Take]:
    camera = film.camera(player.config.game, player.algorithms, episodes, True)
    try:
        return camera.shoot(player.learners, seed, player.clock)
    finally:
        camera.close()


def read_back(path) -> list[np.ndarray]:
    """Every frame of a video."""
    if path.suffix == ".gif":
        with Image.open(path) as image:
            return [np.asarray(_at(image, i)) for i in range(image.n_frames)]
    from imageio_ffmpeg import get_ffmpeg_exe

    told = subprocess.run(
        [get_ffmpeg_exe(), "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"],
        capture_output=True,
        check=True,
    )
    sizes = re.search(rb"Video: h264.*?, (\d+)x(\d+)", told.stderr)
    assert sizes, told.stderr
    return list(np.frombuffer(told.stdout, np.uint8).reshape(-1, int(sizes[2]), int(sizes[1]), 3))


def _at(image: Image.Image, frame: int) -> Image.Image:
    image.seek(frame)
    return image.convert("RGB")


def holds(picture: np.ndarray, colour: str) -> bool:
    return bool((picture == np.array(ImageColor.getrgb(colour))).all(-1).any())


@pytest.mark.parametrize("name", GAMES)
def test_every_native_game_draws_its_teams_and_what_they_do(name):
    short = {"matrix": "repetitions", "test": "length"}.get(name.partition("/")[0], "max_cycles")
    (take,) = shot(guesser(name, ((short, 3),)))
    opening, *_, last = pictures = list(take.pictures())
    assert len(pictures) == take.steps + 1
    assert {picture.shape for picture in pictures} == {opening.shape} and opening.shape[1:] == (
        600,
        3,
    )
    assert len(np.unique(opening.reshape(-1, 3), axis=0)) > 5, "blank"
    assert (opening != last).any(), "nothing changes"
    if not name.startswith("matrix/"):  # whose picture is a table
        assert all(holds(opening, colour) for colour in team_colours(GAMES[name]().teams).values())


def test_a_picture_shows_where_somebody_is_and_has_been():
    at = [Scene([Disc((x, 0.0), 0.1, "agent", name="agent_0")]) for x in (-0.5, 0.5)]
    before, after = draw(at, ["agent"])
    blue = np.array(ImageColor.getrgb(team_colours(["agent"])["agent"]))
    where = [np.argwhere((picture == blue).all(-1)).mean(0)[1] for picture in (before, after)]
    np.testing.assert_allclose(where, [600 * (-0.5 + 1.2) / 2.4, 600 * (0.5 + 1.2) / 2.4], atol=2)
    (alone,) = draw(at[1:], ["agent"])
    middle = (slice(290, 310), slice(250, 350))
    assert (after[middle] != alone[middle]).any(), "no trail"


def test_a_picture_grows_with_whoever_leaves_it():
    (wide,) = draw([Scene([Disc((5.0, 0.0), 0.3, "agent", name="agent_0")])], ["agent"])
    assert holds(wide, team_colours(["agent"])["agent"])


def test_speakers_are_heard_and_goals_are_marked():
    game = envs.make("mpe/simple_speaker_listener")
    state, _ = opened(game, 1)
    world = jax.tree.map(lambda leaf: np.asarray(leaf)[..., 0], state.world)._replace(
        word=np.array([0.0, 0.0, 1.0])
    )
    shapes = game.scene(world, {}).shapes
    assert [
        (shape.name, shape.says) for shape in shapes if isinstance(shape, Disc) and shape.says
    ] == [("speaker_0", "C")]
    (ring,) = (shape for shape in shapes if isinstance(shape, Disc) and shape.hollow)
    np.testing.assert_array_equal(ring.at, world.fixed[world.goal[0]])


@dataclass(frozen=True)
class Plain(Game):
    """A user's game that says nothing about its looks."""

    name = "my/plain"
    limit = 2

    @cached_property
    def teams(self) -> dict[str, Spec]:
        return {"agent": Spec(("runner_0",), obs=1, state=1, action=Discrete(2))}

    def start(self, key, games):
        return jnp.zeros((1, games))

    def advance(self, key, world, actions):
        return world + actions["agent"]

    def observe(self, world):
        return {"agent": world[:, None]}

    def reward(self, world):
        return {"agent": world}


class Drawn(Plain):
    """The same, with a picture."""

    def scene(self, world, actions):
        return Scene([Disc((world[0], 0.0), 0.1, "agent", name="runner_0")])


def test_a_users_game_is_drawn_if_it_has_a_scene():
    play = guesser("test/endless", (("n", 1),)).algorithms
    with pytest.raises(ShoalError, match=r"my/plain cannot be drawn: give it a scene"):
        film.camera(Plain(), play, 1, True)
    (take,) = film.camera(Drawn(), play, 1, True).shoot(
        {"agent": ()}, 0, guesser("test/endless").clock
    )
    assert len(list(take.pictures())) == 3


@pytest.mark.parametrize("name", ["mpe/simple_tag", "test/mortal"])
def test_a_film_is_the_evaluation_of_the_same_seed(name):
    player = guesser(name)
    played = player.evaluate(3, seed=5)
    takes = shot(player, 3, seed=5)
    assert [take.steps for take in takes] == played.length.tolist()
    for team, rows in played.returns.items():
        np.testing.assert_allclose(
            [take.returns[-1][team] for take in takes], rows.mean(1), rtol=1e-5, atol=1e-5
        )
    assert all(take.returns[0] == dict.fromkeys(played.returns, 0.0) for take in takes)


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("pz:mpe2.simple_tag_v3", {"limit": 4}),
        pytest.param(
            "pz:pettingzoo.classic.tictactoe_v3", {"teams": "each"}, marks=pytest.mark.slow
        ),
        pytest.param("gym:CartPole-v1", {"limit": 6}, marks=pytest.mark.slow),
    ],
)
def test_environments_of_others_are_filmed_as_they_are_evaluated(env, options, tmp_path):
    player = guesser(env, tuple(options.items()))
    played = player.evaluate(2, seed=1)
    path = tmp_path / "film.gif"
    takes = watch(player, path, Watching(episodes=2, seed=1))
    assert [take.steps for take in takes] == played.length.tolist()
    for team, rows in played.returns.items():
        np.testing.assert_allclose(
            [take.returns[-1][team] for take in takes], rows.mean(1), rtol=1e-5, atol=1e-5
        )
    first, *_, last = take_pictures = list(takes[0].pictures())
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 1 and (first != last).any()
    assert len(read_back(path)) == sum(take.steps + 1 for take in takes)
    assert len(take_pictures) == takes[0].steps + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["jaxmarl:MPE_simple_tag_v3", "jaxmarl:SMAX", "gymnax:CartPole-v1", "jumanji:Snake-v1"]
)
def test_games_in_jax_of_others_are_drawn(name):
    game = envs.make(name)
    game.drawable()
    states = [jax.device_get(opened(game, 2, seed)[0]) for seed in (0, 1)]
    one, other = game.pictures(states, [{}, {}], 1)
    assert (
        one.dtype == np.uint8
        and one.ndim == 3
        and one.shape == other.shape
        and (one != other).any()
    )
    if name.startswith("jaxmarl"):
        assert all(holds(one, colour) for colour in team_colours(game.teams).values())


def test_a_game_in_jax_that_nobody_draws_is_one_sentence():
    with pytest.raises(ShoalError, match=r"^jaxmarl:overcooked cannot be drawn: neither"):
        envs.make("jaxmarl:overcooked").drawable()


class Unseen:
    """An environment that has no pictures."""

    possible_agents = ["cat_0"]

    def observation_space(self, agent):
        return spaces.Discrete(2)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return {"cat_0": 0}, {}

    def step(self, actions):
        return {"cat_0": 0}, {"cat_0": 0.0}, {"cat_0": False}, {"cat_0": False}, {}

    def close(self):
        pass


def no_mode():
    return Unseen()


def no_render(render_mode=None):
    return Unseen()


@pytest.mark.parametrize(
    ("function", "why"),
    [("no_mode", "give it an argument render_mode"), ("no_render", "it has no render")],
)
def test_an_environment_without_pictures_is_one_sentence(function, why):
    env = Hosted(f"test_film:{function}", {"limit": 3})
    with pytest.raises(ShoalError, match=rf"^test_film:{function} cannot be drawn: .*{why}[^\n]*$"):
        film.camera(env, {}, 1, True)


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".mp4", ".gif"])
def test_a_file_holds_every_instant_and_a_second_at_the_end(ending, tmp_path):
    path = tmp_path / "new" / f"film{ending}"
    (take,) = watch(guesser("mpe/simple_spread"), path, Watching(fps=5))
    frames = read_back(path)
    still = 5 if ending == ".mp4" else 0  # a GIF has one long picture instead
    assert len(frames) == take.steps + 1 + still == 26 + still
    (picture, *_) = take.pictures()
    assert frames[0].shape[0] > picture.shape[0] and frames[0].shape[1] == picture.shape[1]
    bottom = frames[0][-picture.shape[0] :].astype(int)
    assert np.abs(bottom - picture[-bottom.shape[0] :]).mean() < 4, "another picture"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], (
        "something was left behind"
    )


def test_tiny_pictures_grow_and_odd_ones_become_even(tmp_path):
    picture = np.random.default_rng(0).integers(0, 255, (85, 81, 3), np.uint8)
    assert video.fitted(picture).shape == (85 * 5, 81 * 5, 3)
    assert video.fitted(np.zeros((1500, 3001, 3), np.uint8)).shape[1] <= 1200
    video.save(tmp_path / "odd.mp4", [picture, picture[:40]], 5)
    assert [frame.shape for frame in read_back(tmp_path / "odd.mp4")] == [(84, 80, 3)] * 2


@pytest.mark.slow
def test_without_ffmpeg_mp4_is_refused_in_a_sentence_and_gif_is_the_default(tmp_path):
    script = (
        "import sys; sys.modules['imageio_ffmpeg'] = None\n"
        "from shoal.cli.main import main\n"
        "args = ['watch', 'random', 'matrix/nonmonotonic']\n"
        "sys.exit(main([*args, '--out', 'x.mp4']) * 10 + main(args))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 20, done.stderr
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .startswith("shoal: an .mp4 needs imageio-ffmpeg: pip install 'shoal[video]'")
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["matrix-nonmonotonic-seed-0.gif"]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([], "say what to watch"),
        (["nowhere"], "nowhere"),
        (["random"], "say which game random shall play"),
        (["mappo", "mpe/simple_spread"], "mappo must be trained before it can be watched"),
        (["random", "mpe/simple_sprad"], "did you mean 'mpe/simple_spread'"),
        (["random", "mpe/simple", "--out", "film.avi"], "ends in .mp4 or .gif"),
        (["random", "mpe/simple", "--episodes", "0"], "episodes must be 1 to 100"),
        (["random", "mpe/simple", "--out", "/proc/film.gif"], "cannot be written"),
    ],
)
def test_mistakes_are_one_sentence(args, sentence, capsys):
    assert main(["watch", *args]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1


@pytest.fixture(scope="module")
def filmed(tmp_path_factory):
    """The same short run without and with a film of its evaluations."""
    out = tmp_path_factory.mktemp("runs")
    settings = {
        "steps": 200,
        "games": 4,
        "window": 10,
        "evaluations": 1,
        "eval_episodes": 3,
        "devices": 1,
    }
    for count in (0, 2):
        own = settings | {"film": count, "out": str(out), "name": f"film-{count}"}
        sides = {
            team: ("ppo", {**TINY, "minibatches": 1, "epochs": 1})
            for team in ("adversary", "agent")
        }
        train(Config.build("mpe/simple_tag", sides, {"max_cycles": 5}, own), quiet=True)
    return out


@pytest.mark.slow
def test_filming_changes_nothing_about_the_run(filmed):
    plain, seen = (filmed / f"film-{count}" for count in (0, 2))
    for name in ("policy/weights.safetensors", "episodes.csv"):
        assert (plain / name).read_bytes() == (seen / name).read_bytes()
    assert not (plain / "videos").exists()


@pytest.mark.slow
def test_filming_leaves_a_video_of_each_evaluation_also_in_tensorboard(filmed):
    run = filmed / "film-2"
    videos = sorted((run / "videos").iterdir())
    steps = sorted(
        {line.split(",")[0] for line in (run / "episodes.csv").read_text().splitlines()[1:]},
        key=int,
    )
    assert [video.stem for video in videos] == [f"step-{int(step):09d}" for step in steps] and len(
        videos
    ) == 3
    assert len(read_back(videos[-1])) == 2 * (6 + film.FPS)
    events = b"".join(path.read_bytes() for path in (run / "tensorboard").iterdir())
    assert events.count(b"evaluation/film") == 3 and events.count(b"GIF89a") == 3


@pytest.mark.slow
def test_a_run_is_watched_into_its_own_folder(filmed, capsys):
    run = filmed / "film-0"
    assert main(["watch", str(run), "--seed", "3", "--team", "agent=random", "--best"]) == 0
    told = capsys.readouterr().out
    path = run / "videos" / "best-agent-random-seed-3.mp4"
    assert f"wrote {path}" in told and "episode 1: 5 steps" in told
    assert len(read_back(path)) == 6 + film.FPS
    assert main(["watch", str(run / "best"), "--sampled", "--episodes", "2", "--out", ""]) == 0
    assert (
        f"wrote {run / 'videos' / 'best-sampled-2-episodes-seed-0.mp4'}" in capsys.readouterr().out
    )
    assert main(["watch", str(run / "policy"), "--seed", "1"]) == 0
    assert f"wrote {run / 'videos' / 'last-seed-1.mp4'}" in capsys.readouterr().out


@pytest.mark.slow
def test_a_notebook_shows_the_film_that_the_command_writes(filmed):
    run = filmed / "film-0"
    result = Run(run, {}, {}, {}, 200, 0.0)
    film_of_it = result.watch(seed=3, greedy=False)
    assert film_of_it.path == run / "videos" / "last-sampled-seed-3.mp4"
    assert (
        main(["watch", str(run), "--seed", "3", "--sampled", "--out", str(run / "same.mp4")]) == 0
    )
    pairs = zip(read_back(film_of_it.path), read_back(run / "same.mp4"), strict=True)
    assert all((one == other).all() for one, other in pairs)
