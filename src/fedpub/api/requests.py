"""An experiment from keywords, with methods and models given by name or as objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch

from fedpub.algorithms import METHODS, Algorithm, method_called, options_of
from fedpub.errors import FedpubError, unknown
from fedpub.experiment import Experiment
from fedpub.experiment.plan import OBJECT
from fedpub.experiment.spec import Request
from fedpub.models import MODELS, Model, Module
from fedpub.models.module import object_name

SETTINGS = tuple(one.name for one in fields(Experiment))


def check_keywords(function: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise unknown(f"keyword of {function}", name, known)


def hyper_parameters(method: Any) -> list[str]:
    """The hyper-parameters that can be keywords; a method object already has its own."""
    name, _, own = method_of(method)
    return [] if own is not None else options_of(name)


def request(method: Any, model: Any, settings: Mapping[str, Any]) -> Request:
    """The experiment from keywords: its own settings, and hyper-parameters of the method."""
    name, options, own_method = method_of(method)
    chosen = {keyword: value for keyword, value in settings.items() if keyword in SETTINGS}
    options |= chosen.pop("options", {})
    options |= {keyword: value for keyword, value in settings.items() if keyword not in SETTINGS}
    if own_method is not None and options:
        raise FedpubError(
            f"options={options} have no effect on the object {type(method).__name__}; pass them to its class"
        )
    chosen["model"], sizes, own_model = _model(model)
    for size, value in sizes.items():
        if chosen.setdefault(size, value) != value:
            raise FedpubError(f"{size}={chosen[size]} contradicts the model, which has {value}; leave one of them out")
    chosen |= {"method": name, "options": options}
    return Request(Experiment(**chosen), own_method, own_model)


def method_of(method: Any) -> tuple[str, dict[str, Any], Any]:
    """The name and options of a method, and the object itself if it is not one of the package's methods."""
    if isinstance(method, str):
        return method_called(method), {}, None
    _check_object("method", method, Algorithm)
    for name, kind in METHODS.items():
        if type(method) is kind:
            return name, dataclasses.asdict(method), None  # type: ignore[call-overload]
    if not dataclasses.is_dataclass(method):
        raise FedpubError(
            f"the method {type(method).__name__} is not a dataclass; put @dataclass(frozen=True) above it, so that its "
            "fields are its hyper-parameters"
        )
    return OBJECT + type(method).__name__, {}, method


def _model(model: Any) -> tuple[str | None, dict[str, int], Any]:
    """The name and sizes of a model, and the object itself if it is not one of the package's models."""
    if model is None or isinstance(model, str):
        return model, {}, None
    model = model_object(model)
    for name, kind in MODELS.items():
        if type(model) is kind:
            return name, {one.name: getattr(model, one.name) for one in fields(kind) if one.name in SETTINGS}, None
    return OBJECT + object_name(model), {}, model


def model_object(model: Any) -> Model:
    """An object with the protocol of models; a PyTorch module becomes one."""
    if isinstance(model, torch.nn.Module):
        return Module.of(model)
    _check_object("model", model, Model)
    found: Model = model
    return found


def _check_object(kind: str, thing: Any, protocol: Any) -> None:
    """Raise an error unless an object has every member of its protocol."""
    if isinstance(thing, type):
        raise FedpubError(f"the {kind} {thing.__name__} is a class; give an instance, such as {thing.__name__}()")
    for name in (*vars(protocol), *protocol.__annotations__):
        if not name.startswith("_") and not hasattr(thing, name):
            raise FedpubError(
                f"the {kind} {type(thing).__name__} lacks {name!r}; give a name, or an object whose class "
                f"inherits from {protocol.__module__}.{protocol.__name__}"
            )


def labelled_methods(methods: Any) -> dict[str, Any]:
    """The methods by their labels in a table."""
    if isinstance(methods, str):
        methods = [methods]
    if not isinstance(methods, Mapping):
        named = [(one if isinstance(one, str) else method_of(one)[0].removeprefix(OBJECT), one) for one in methods]
        methods = dict(named)
        if len(methods) < len(named):
            names = [name for name, _ in named]
            twice = next(name for name in names if names.count(name) > 1)
            raise FedpubError(f"two methods are called {twice!r}; give labels, methods={{'mine': ..., 'other': ...}}")
    if not methods:
        raise FedpubError("there is nothing to compare; name one or more methods, such as methods=['fedpub', 'local']")
    return dict(methods)
