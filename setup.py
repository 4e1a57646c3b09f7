"""What pyproject.toml cannot say: the compiled modules, which the router runs without where they are missing."""

from setuptools import setup

setup(
    cffi_modules=[
        "router/amqp/engine/steps_build.py:ffibuilder",
        "router/amqp/guard/frames_build.py:ffibuilder",
        "router/amqp/layout/walk_build.py:ffibuilder",
    ]
)
