"""Studio without its page: what is sampled, marked, scored and shown; uploads; stopping."""

import asyncio
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from axial_transformers.cli import studio as verb
from axial_transformers.cli.commands import Studio
from axial_transformers.data import Examples
from axial_transformers.decoding.sampling import complete, exact_layouts, sample
from axial_transformers.likelihood.bits import bits_per_dim
from axial_transformers.likelihood.outliers import score, share_below
from axial_transformers.pictures import marks_for_display
from axial_transformers.studio import actions, views
from axial_transformers.studio import studio_model as limits
from axial_transformers.studio.actions import Jobs, SamplingOptions, StoppedError
from axial_transformers.studio.request_limits import RequestLimits
from axial_transformers.studio.studio_model import StudioModel
from tests.conftest import Axial
from tests.small_models import VARIANTS, random_model, random_values


def studio_model(name: str = "2d deep", **fields: object) -> StudioModel:
    model = random_model(VARIANTS[name], torch.float32)
    examples = Examples(values=random_values(model, 6).numpy().astype(np.uint8), names=[f"<{i}>" for i in range(6)])
    given = {"read": lambda path, fit: examples, "examples": examples} | fields
    return StudioModel(model=model, name="a model", **given)


def pictures(page: str) -> list[Image.Image]:
    found = re.findall(r'<img src="data:image/png;base64,([^"]+)"', page)
    return [Image.open(BytesIO(b64decode(each))) for each in found]


def test_samples_are_those_of_the_library():
    studio = studio_model("classes")
    sampled = actions.new_samples(studio, SamplingOptions(count=3, temperature=0.8, top_p=0.7, label=2, seed=5))
    expected = sample(studio.model, 3, temperature=0.8, top_p=0.7, label=2, seed=5)
    assert np.array_equal(sampled, expected)
    assert studio.classes == ["0", "1", "2"]
    assert replace(studio, class_names=("a", "b", "c")).classes == ["a", "b", "c"]


def test_models_of_known_channels_continue_the_data():
    studio = studio_model("known channels")
    sampled = actions.new_samples(studio, SamplingOptions(count=8))
    assert np.array_equal(sampled[..., 0], studio.examples.values[[*range(6), 0, 1], ..., 0])
    with pytest.raises(ValueError, match="DATA"):
        actions.new_samples(replace(studio, examples=None), SamplingOptions(count=8))


@pytest.mark.parametrize("name", ["1d", "2d deep", "3d", "columns", "raster", "known channels"])
def test_marks_are_the_missing_positions_before_a_known_one(name):
    model, generator = random_model(VARIANTS[name]), np.random.default_rng(0)
    order = [tuple(position) for position in model.order.tolist()]
    masks = [generator.random((*model.config.shape, model.config.channels)) < p for p in (0.0, 0.2, 0.5, 0.9, 1.0)]
    masks.append(np.zeros_like(masks[0]))
    for position in order[: len(order) // 2]:
        masks[-1][position] = True
    for known in masks:
        early = actions.sampled_early(model, known)
        expected = {
            position for i, position in enumerate(order) if not known[position] and any(known[s] for s in order[i:])
        }
        assert {tuple(map(int, position)) for position in np.argwhere(early)} == expected
        assert (not early.any()) == (model.config.layout in exact_layouts(model, torch.from_numpy(known)))


def test_completions_keep_what_is_known_and_say_whether_they_are_exact():
    studio = studio_model("2d", palette="gray")
    example = studio.examples.values[0]
    lower, hole = np.zeros((3, 5), bool), np.zeros((3, 5), bool)
    lower[2:], hole[1, 2:4] = True, True
    for erased, text in ((lower, "Exact samples"), (hole, "2 of 2 erased positions")):
        done = actions.new_completions(studio, example, erased, SamplingOptions(count=3, seed=1))
        mask = torch.from_numpy(~erased)
        expected = complete(studio.model, torch.from_numpy(example[None]), mask=mask, count=3, approximate=True, seed=1)
        assert np.array_equal(done, expected)
        assert np.array_equal(done[:, ~erased], example[None][:, ~erased].repeat(3, 0))
        page = views.completions(studio, example, erased, done)
        assert text in page
        red, green, _ = np.moveaxis(np.asarray(pictures(page)[0].convert("RGB"), int), -1, 0)
        assert (red - green > 60).any() == (erased is hole)
    with pytest.raises(ValueError, match="nothing is erased"):
        actions.new_completions(studio, example, np.zeros((3, 5), bool), SamplingOptions())


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 4)])
def test_paint_covers_the_positions_that_are_shown_there(shape):
    marks = np.random.default_rng(0).random(shape) < 0.4
    width = {1: 20, 2: 5, 3: 8}[len(shape)]
    assert np.array_equal(actions.erased_positions(marks_for_display(marks, width), shape), marks)


def test_a_ranking_is_by_the_score_and_its_share_of_the_data():
    studio = studio_model("2d")
    values = random_values(studio.model, 5, seed=1).numpy().astype(np.uint8)
    typical, scores = score(studio.model, studio.examples.values), score(studio.model, values)
    assert scores.bits == pytest.approx(bits_per_dim(studio.model, torch.from_numpy(values)).numpy())
    share = share_below(typical.bits, scores.bits)
    assert share == pytest.approx([(typical.bits < each).mean() for each in scores.bits])
    for by in ("bits", "corrected"):
        page = views.ranking(studio, values, [f"<{i}>" for i in range(5)], scores, typical, by, "as <asked>")
        assert f"Ranked by {by}: as &lt;asked&gt;." in page
        names = [int(name) for name in re.findall(r"<td>&lt;(\d)&gt;</td>", page)]
        assert names == np.argsort(-getattr(scores, by)).tolist()
        assert f"{share[names[0]]:.1%} of the data" in page or by == "corrected"
        assert len(pictures(page)) == 10


@pytest.mark.parametrize("name", ["1d", "2d deep", "3d"])
def test_everything_is_shown_of_sequences_images_and_clips(name):
    studio = studio_model(name)
    example = studio.examples.values[0]
    axis = np.zeros(studio.model.config.shape, bool)
    axis[-1:] = True
    shown = [
        views.samples(studio, actions.new_samples(studio, SamplingOptions(count=2))),
        views.completions(
            studio, example, axis, actions.new_completions(studio, example, axis, SamplingOptions(count=2))
        ),
        views.bits(studio, example),
    ]
    assert [page.count("<video") for page in shown] == ([1, 1, 0] if name == "3d" else [0, 0, 0])
    assert all(page.count("<img") + page.count("<video") for page in shown)
    assert f"{bits_per_dim(studio.model, torch.from_numpy(example[None])).item():.4f} bits/dim" in shown[2]
    picture, scale = views.to_paint(studio, example)
    assert np.array_equal(picture[::scale, ::scale], views.displayed(studio, example[None])[0])
    assert "a model" in views.described(studio)
    with pytest.raises(ValueError, match="4 axes"):
        studio_model("4d")


def test_files_are_bounded_and_named_without_their_folder(monkeypatch):
    studio = studio_model()

    def read(path: str, fit: str) -> Examples:
        if "bad" in path:
            raise ValueError(f"{path} is not a whole image")
        return studio.examples

    studio = replace(studio, read=read)
    values, names = studio.files(["/a/b/1.png", "/a/c/2.png"], "crop")
    assert values.shape == (12, 3, 2, 2)
    assert names == [*studio.examples.names] * 2
    for paths, says in (
        (["/tmp/x/good.png", "/tmp/x/bad.png"], r"^bad.png is not a whole image$"),
        ([], "no files"),
        (["/x"] * (limits.MAX_FILES + 1), "65 files are more than 64"),
    ):
        with pytest.raises(ValueError, match=says):
            studio.files(paths, "exact")
    monkeypatch.setattr(limits, "MAX_EXAMPLES", 11)
    with pytest.raises(ValueError, match=r"2\.png: more than 11 examples"):
        studio.files(["/a/b/1.png", "/a/c/2.png"], "crop")


def ask(guard: RequestLimits, **headers: str) -> int:
    """The status that a request of these headers gets; 200 where the application answers it."""
    sent = []

    async def send(message: dict) -> None:
        sent.append(message)

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(guard({"type": "http", "headers": given}, None, send))
    return sent[0]["status"]


@pytest.fixture
def guard(tmp_path) -> RequestLimits:
    async def app(scope: dict, receive: object, send: Callable) -> None:
        await send({"status": 200})

    return RequestLimits(app, ("localhost", "laptop"), tmp_path, 1000)


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost:7860", "laptop", "[::1]:7860", "192.168.1.2:80"])
def test_the_page_is_answered_under_its_addresses_and_names(guard, host):
    assert ask(guard, host=host) == 200
    assert ask(guard, host=host, origin=f"http://{host}", content_length="1000") == 200


@pytest.mark.parametrize("host", ["evil.example:7860", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1"])
def test_a_name_that_another_site_may_have_made_lead_here_is_refused(guard, host):
    assert ask(guard, host=host, origin=f"http://{host}") == 403
    assert ask(guard, host=host) == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1", "http://localhost:7860", "http://127.0.0.1:78600", ""]
)
def test_requests_of_another_sites_page_are_refused(guard, origin):
    assert ask(guard, host="127.0.0.1:7860", origin=origin) == 403


def test_uploads_are_bounded_in_total(guard, tmp_path):
    inner = guard._app
    (tmp_path / "session").mkdir()
    (tmp_path / "session/file").write_bytes(bytes(600))
    assert ask(guard, host="localhost", content_length="400") == 200
    assert ask(guard, host="localhost", content_length="401") == 413
    assert ask(guard, host="localhost", transfer_encoding="chunked") == 413

    async def app(scope: dict, receive: object, send: Callable) -> None:
        guard._app = inner
        statuses = [guard._refusal({"host": "localhost"}, size) for size in (100, 101)]
        assert [status and status[0] for status in statuses] == [None, 413]
        await send({"status": 200})

    guard._app = app
    assert ask(guard, host="localhost", content_length="300") == 200  # while another comes
    (tmp_path / "session/file").unlink()
    assert ask(guard, host="localhost", content_length="1000") == 200


def test_work_stops_at_the_next_step():
    jobs, seen = Jobs(), []

    def progress(items: Iterable[int]) -> Iterator[int]:
        for item in items:
            seen.append(item)
            yield item

    steps = iter(jobs.begin("one", progress)(range(9)))
    jobs.stop("another")
    assert [next(steps), next(steps)] == [0, 1]
    jobs.stop("one")
    with pytest.raises(StoppedError):
        next(steps)
    assert seen == [0, 1, 2]
    assert [*jobs.begin("one", iter)(iter("ab"))] == ["a", "b"]
    stopped = jobs.begin("two", iter)
    jobs.end("two")
    with pytest.raises(StoppedError):
        actions.new_samples(studio_model("1d"), SamplingOptions(count=1), stopped)


def test_without_gradio_the_verb_says_how_to_install_it(axial: Axial, monkeypatch):
    monkeypatch.setattr(verb, "find_spec", lambda name: None)
    assert axial("studio", "nowhere") == (
        2,
        "",
        "axial studio: Gradio is missing: pip install 'axial-transformers[studio]', in an environment of its own\n",
    )
    assert axial("studio", "nowhere", "--port", "0").err == "axial studio: --port must be in 1..65535, not 0\n"


def test_the_models_own_data_is_read_where_it_is_at_hand(trained, tmp_path, capsys):
    options = Studio(model=str(trained), limit=7)
    studio = verb.studio_model(verb.open_model(options.model), options)
    assert len(studio.examples) == 7
    Image.new("L", (20, 20)).save(tmp_path / "a.png")
    assert studio.read(str(tmp_path / "a.png"), "crop").values.shape == (1, 8, 8, 1)
    with pytest.raises(ValueError, match="fit=crop"):
        studio.read(str(tmp_path / "a.png"), "exact")
    studio.model.save_pretrained(tmp_path / "exported")
    options = replace(options, model=str(tmp_path / "exported"))
    assert verb.studio_model(verb.open_model(options.model), options).examples is None
    assert "without data: this model does not know its data" in capsys.readouterr().err
