"""What a reader of a page does, in a browser that selenium drives."""

import json


class Reader:
    def __init__(self, driver):
        self.driver = driver

    def wait(self, condition, seconds=240):
        from selenium.webdriver.support.wait import WebDriverWait

        return WebDriverWait(self.driver, seconds).until(lambda _: condition())

    def find(self, selector):
        return self.driver.find_elements("css selector", selector)

    def text(self, selector):
        return " ".join(element.text for element in self.find(selector))

    def resize(self, width):
        """A phone's width: a window cannot be that narrow."""
        metrics = {"width": width, "height": 1500, "deviceScaleFactor": 1, "mobile": True}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.wait(lambda: self.driver.execute_script("return window.innerWidth") == width)

    def width(self):
        """The width of what the page shows."""
        return self.driver.execute_script("return document.documentElement.scrollWidth")

    def requests(self):
        """The addresses that the page asked for."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [
            event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in sent if not url.startswith(("data:", "blob:", "chrome:"))]
