"""Checks of our HTML pages: well formed, self-contained, usable at the width of a phone.

Input: the text of a page. Output: the `Structure` that was read, or an AssertionError.
"""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

VOID = {"meta", "input", "br", "link", "img"}
MEASURE = """<script>
const beyond = e => e.getBoundingClientRect().width && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
const found = [...document.querySelectorAll("body *")].filter(e => beyond(e) && !e.closest(".scroll, pre, .skip, .track, svg"));
parent.postMessage(JSON.stringify(found.map(e => e.outerHTML.slice(0, 60))), "*");
</script>"""
FRAME = """<title>nothing</title><script>addEventListener("message", e => document.title = "measured " + e.data);</script>
<iframe src="page.html" style="width: {width}px; height: 2000px; border: 0"></iframe>"""


class Structure(HTMLParser):
    """Every element that is opened is closed; nothing is loaded; tables scroll, and fold at the width of a phone if they have headers."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.text, self.links, self.ids = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append(tag)
        assert "src" not in attributes and (attributes.get("href") or "#").startswith("#"), attrs
        classes = (attributes.get("class") or "").split()
        if tag == "table":
            assert any("scroll" in outer for _, outer in self.open), f"a table that can't scroll: {attrs}"
        self.links += [attributes["href"][1:]] if "href" in attributes else []
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag not in VOID:
            self.open.append((tag, classes))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        self.text.append(data)


def check(page):
    """The structure of a page whose links all resolve."""
    structure = Structure()
    structure.feed(page)
    structure.close()
    assert structure.open == [] and len(set(structure.ids)) == len(structure.ids)
    assert set(structure.links) <= set(structure.ids), set(structure.links) - set(structure.ids)
    return structure


def chromium():
    """The program of a Chromium, None if there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def overflowing(page, folder, width=390):
    """What of a page, with all its details open, ends beyond a window of that many pixels, as Chromium lays it out: the start of each
    element's HTML. `folder` is for its files."""
    opened = page.replace("<details", "<details open").replace(" open open", " open")
    (folder / "page.html").write_text(opened.replace("</body>", MEASURE + "</body>"))
    # Chromium's own windows are at least 500 pixels wide.
    (folder / "frame.html").write_text(FRAME.format(width=width))
    arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--virtual-time-budget=5000",
    ]
    command = [chromium(), *arguments, f"--user-data-dir={folder}/profile", "--dump-dom", f"file://{folder}/frame.html"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    (found,) = re.findall("<title>measured (.*)</title>", shown)
    return json.loads(html.unescape(found))
