"""A real browser without a window, driven as a person uses one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
_WAIT_S = 30
_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")


class Browser:
    """Chromium, as far as the tests need it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver

    def look(self, width: int = 1200, height: int = 800, dark: bool = False) -> None:
        """Set the size of the page, and whether the person prefers a dark one."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, address: str) -> None:
        """Open a page."""
        self._driver.get(address)

    @property
    def address(self) -> str:
        """The page's address."""
        return self._driver.current_url

    def type(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        for key in keys:
            self._driver.switch_to.active_element.send_keys(key)

    def all(self, selector: str) -> list[WebElement]:
        """Return all elements of a selector."""
        return list(self._driver.find_elements(By.CSS_SELECTOR, selector))

    def wait(self, selector: str, text: str = "") -> WebElement:
        """Wait for an element that shows a text."""

        def found(_driver: Any) -> WebElement | Literal[False]:
            return self._found(selector, text) or False

        try:
            return WebDriverWait(self._driver, _WAIT_S, 0.05).until(found)
        except TimeoutException:
            raise AssertionError(f"no {selector} with {text!r} in: {self.all('body')[0].text}") from None

    def wait_gone(self, selector: str, text: str = "") -> None:
        """Wait until no element shows a text."""
        WebDriverWait(self._driver, _WAIT_S, 0.05).until_not(lambda _driver: self._found(selector, text))

    def wait_address(self, part: str) -> None:
        """Wait until the page's address contains a text."""
        WebDriverWait(self._driver, _WAIT_S, 0.05).until(lambda _driver: part in self.address)

    def run(self, script: str) -> Any:
        """Run a script in the page."""
        return self._driver.execute_script(script)

    def complaints(self) -> list[str]:
        """Return what the browser logged since the last call: errors of scripts and of the content security policy."""
        logged = self._driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in logged if entry["level"] in ("SEVERE", "WARNING")]

    def cookies(self) -> list[dict[str, Any]]:
        """Return the cookies of the page."""
        return list(self._driver.get_cookies())

    def forget(self) -> None:
        """Delete all cookies."""
        self._driver.execute_cdp_cmd("Network.clearBrowserCookies", {})

    def save(self, file: Path) -> None:
        """Write a picture of what is seen."""
        self._driver.save_screenshot(str(file))

    def _found(self, selector: str, text: str) -> WebElement | None:
        script = """return [...document.querySelectorAll(arguments[0])]
            .find((one) => one.textContent.includes(arguments[1])) ?? null"""
        found: WebElement | None = self._driver.execute_script(script, selector, text)
        return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run Chromium."""
    assert CHROMIUM is not None
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in _OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


__all__ = ["CHROMIUM", "DRIVER", "Browser", "Keys", "chromium"]
