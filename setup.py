"""What pyproject.toml cannot say: the one compiled module, which the router runs without where it is missing."""

from setuptools import setup

setup(cffi_modules=["router/amqp/engine/steps_build.py:ffibuilder"])
