"""Builds the compiled modules, which pyproject.toml cannot declare."""

from setuptools import setup

setup(
    cffi_modules=[
        "router/amqp/engine/steps_build.py:ffibuilder",
        "router/amqp/guard/frames_build.py:ffibuilder",
        "router/amqp/layout/walk_build.py:ffibuilder",
    ]
)
