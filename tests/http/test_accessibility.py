"""What axe-core finds of the page, in light and dark, on a desktop and a phone."""

import unittest

import answers
import browser
import nodes

SHOTS = nodes.SOURCE / "build/page"

# All elements of cards that stick out, but for those in what can be scrolled.
OUTSIDE = """[...document.querySelectorAll('.card *, .finding *')].filter(element => {
  const card = element.closest('.card, .finding').getBoundingClientRect();
  const box = element.getBoundingClientRect();
  const shown = element.getClientRects().length && !element.closest('.scroll *');
  return shown && (box.left < card.left || box.right > card.right);
}).map(element => element.outerHTML.slice(0, 200))"""


def axe():
    path = nodes.SOURCE / "build/tools/axe-playwright-python"
    for script in path.glob("lib/*/site-packages/axe_playwright_python/axe.min.js"):
        return script.read_text()
    raise unittest.SkipTest("axe-core is not there; run tests/tools/get axe-playwright-python")


class AccessibilityTest(nodes.MeshTest):
    def setUp(self):
        self.axe = axe()
        self.agent = self.mesh("a").agents[0]
        self.page = browser.Browser()
        self.addCleanup(self.page.end)

    def check(self, made, words, name):
        for dark in (False, True):
            for width in (1240, 390):
                with self.subTest(dark=dark, width=width):
                    self.page.open(f"http://{self.agent.metrics}/", nodes.ADMIN, dark, width)
                    self.page.wait_for("1 node", "serving")
                    if made:
                        self.page.evaluate(answers.script(made))
                    self.page.wait_for(*words)
                    self.page.evaluate(
                        "document.querySelectorAll('details').forEach(one => one.open = true); 0")
                    nodes.wait_until(lambda: self.page.evaluate(
                        "[...document.querySelectorAll('details')].every(one => one.children[1])"),
                        "all is unfolded")
                    scheme = "dark" if dark else "light"
                    self.page.screenshot(SHOTS / f"{name}-{scheme}-{width}.png")
                    self.page.evaluate(self.axe + "; 0")
                    found = self.page.evaluate(
                        "axe.run().then(({violations}) => violations.map(one => [one.id, "
                        "one.nodes.slice(0, 3).map(node => [node.html, node.failureSummary])]))")
                    self.assertEqual(found, [])
                    self.assertEqual(self.page.evaluate(OUTSIDE), [])
                    self.assertEqual(self.page.evaluate("document.body.scrollWidth"), width)

    def test_without_jobs(self):
        self.check(None, ["No job is running"], "axe-empty")

    def test_many_ranks(self):
        self.check(answers.big(calls=4), ["256 ranks", "1 behind"], "axe-many")

    def test_trouble(self):
        self.check(answers.troubled(), ["no quorum", "XID 79", "late_rank"], "axe-trouble")


if __name__ == "__main__":
    unittest.main()
