"""The wheel's tag: any Python 3 on this platform where installed/ holds the program and the library (`make wheel`); any platform
where it does not, since ctypes then loads an installed libpotluck.so."""

import pathlib

from setuptools import Distribution, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel


class OfPlatform(Distribution):
    def has_ext_modules(self):
        return pathlib.Path("potluck/installed").exists()


class Wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(distclass=OfPlatform, cmdclass={"bdist_wheel": Wheel})
