"""The page in a real browser. The tests skip where there is no Chromium or no Playwright."""
