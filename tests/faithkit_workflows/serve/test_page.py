"""The page in a browser: an example, the threshold, a problem, a phone."""

from collections.abc import Iterator

import pytest

from faithkit_workflows.serve.app import EXAMPLES
from tests.browser import PROGRAM, Browser, chromium
from tests.faithkit_workflows.serve.running_server import RunningServer

pytestmark = [
    pytest.mark.xdist_group("serve-routes"),
    pytest.mark.skipif(PROGRAM is None, reason="needs the program chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def wait(browser: Browser, condition: str) -> None:
    browser.ask(
        "new Promise((done, fail) => { const end = Date.now() + 30000; const look = () => {"
        f" if ({condition}) done(); else if (Date.now() > end) fail(new Error('never')); else setTimeout(look, 20); }};"
        " look(); })"
    )


def judge_example(browser: Browser, server: RunningServer, number: int = 0) -> None:
    browser.open(server.url)
    browser.click("#examples button", number)
    wait(browser, "!document.querySelector('#result').hidden")


def test_an_example_is_judged_and_the_threshold_changes_its_label(browser: Browser, server: RunningServer) -> None:
    browser.window(1200, 900)
    judge_example(browser, server)
    assert browser.texts("#marked") == [EXAMPLES[0]["answer"]]
    for value, label in (("0", "hallucinated"), ("1", "unsure")):
        browser.ask(
            f"(() => {{ const e = document.querySelector('#threshold'); e.value = {value};"
            " e.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )
        wait(browser, f"document.querySelector('#label').textContent === '{label}'")
    assert browser.complaints == []


def press(browser: Browser, key: str, code: int, *, ctrl: bool = False) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.send(
            "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, modifiers=2 * ctrl
        )


def test_the_keyboard_is_enough(browser: Browser, server: RunningServer) -> None:
    focused = "document.activeElement.id || document.activeElement.textContent.slice(0, 20)"
    browser.window(1200, 900)
    browser.open(server.url)
    order = []
    for _ in range(9):
        press(browser, "Tab", 9)
        order.append(browser.ask(focused))
    names = [example["name"] for example in EXAMPLES]
    assert order == ["Skip to the form", *names, "context", "question", "answer", "model", "check"]
    browser.type("#context", "The pump has a warranty of 24 months.\n\nReturns are free.")
    browser.type("#answer", "Nobody mentioned zebras, 36 of them.")
    press(browser, "Enter", 13, ctrl=True)
    wait(browser, "document.activeElement.id === 'result'")
    browser.ask("document.querySelector('#threshold').focus()")
    press(browser, "Home", 36)  # the lowest threshold: hallucinated, with marks
    wait(browser, "document.querySelectorAll('#marked mark').length > 0")
    assert browser.ask(focused) == "threshold" and browser.ask("document.querySelector('#threshold').value") == "0"
    browser.ask("document.querySelector('#marked mark').focus()")
    assert browser.texts("#tip")[0].startswith("unsupported addition, number")
    lit = browser.ask("document.querySelectorAll('#spans .lit').length")
    assert lit == 1 and browser.complaints == []


def test_every_control_has_a_name(browser: Browser, server: RunningServer) -> None:
    browser.send("Accessibility.enable")
    judge_example(browser, server)
    nodes = browser.send("Accessibility.getFullAXTree")["nodes"]
    roles = ("textbox", "combobox", "button", "slider", "link", "region")
    named = {
        (node["role"]["value"], node["name"]["value"]) for node in nodes if node.get("role", {}).get("value") in roles
    }
    assert {("slider", "Threshold"), ("region", "Verdict")} <= named
    assert all(name.strip() for _, name in named)


def test_texts_are_shown_as_text_and_problems_are_explained(browser: Browser, server: RunningServer) -> None:
    browser.open(server.url)
    browser.type("#context", "The <b>warranty</b> lasts 24 months.")
    browser.type("#answer", "<img src=x onerror=alert(1)> It lasts 36 months. 👩‍🚀")
    browser.click("#check")
    wait(browser, "!document.querySelector('#result').hidden")
    assert browser.ask("document.querySelectorAll('#marked img').length") == 0
    assert browser.texts("#marked")[0].startswith("<img src=x")
    browser.ask(
        "document.querySelector('#model').append(new Option('gone')); document.querySelector('#model').value='gone'"
    )
    browser.click("#check")
    wait(browser, "!document.querySelector('#problem').hidden")
    assert browser.texts("#problem") == ["no such model is served: use one of: tiny, critic"]
    browser.complaints.clear()  # the browser lists the refused request


@pytest.mark.parametrize("name", ["context", "answer"])
def test_without_a_text_the_earlier_verdict_goes_and_the_problem_is_named(browser, server, name) -> None:
    judge_example(browser, server)
    browser.ask(f"document.querySelector('#{name}').value = ' '")
    browser.click("#check")
    wait(browser, "document.querySelector('#result').hidden")
    assert browser.texts("#problem") == [f"The {name} is empty."]
    assert browser.ask("document.activeElement.id") == name and browser.texts("#check") == ["Check"]
    browser.click("#examples button")
    wait(browser, "!document.querySelector('#result').hidden && document.querySelector('#problem').hidden")
    assert browser.complaints == []


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_is_cut_and_no_other_address_is_called(browser, server, width, tmp_path) -> None:
    browser.window(width, 800, dark=True)
    judge_example(browser, server, 1)
    assert browser.ask("document.documentElement.scrollWidth") <= width
    loaded = browser.ask("performance.getEntriesByType('resource').map((entry) => new URL(entry.name).host)")
    assert set(loaded) <= {f"127.0.0.1:{server.port}"}
    assert browser.complaints == []
