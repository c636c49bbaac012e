"""How long a page takes to open in Chromium, until its last script has run and its tables are
filled.

usage: page_open.py URL [TIMES]
"""
import shutil
import sys
import time

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
except ImportError:
    sys.path.insert(0, "/usr/lib/python3/dist-packages")  # Debian's python3-selenium
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

options = webdriver.ChromeOptions()
options.binary_location = shutil.which("chromium")
for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
    options.add_argument(flag)
browser = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
loads, fills = [], []
for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 5):
    browser.get("about:blank")
    browser.execute_cdp_cmd("Network.clearBrowserCache", {})
    browser.get(sys.argv[1])
    while not browser.execute_script("return document.querySelectorAll('#peers tr').length && "
                                     "document.querySelectorAll('#chart-loss path').length"):
        time.sleep(0.005)
    fills.append(browser.execute_script("return performance.now()"))
    loads.append(browser.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd"))
browser.quit()
print("opens in %.0f ms (%s), tables and charts are there after %.0f ms" %
      (sorted(loads)[len(loads) // 2], " ".join("%.0f" % x for x in loads), sorted(fills)[len(fills) // 2]))
