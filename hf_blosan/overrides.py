"""Configuration fields from a command line."""

import yaml

from .errors import InputError


def parse_config_overrides(text: str | None) -> dict:
    """``"dropout=0.3,directions=[diagonal,full]"`` -> ``{"dropout": 0.3, "directions": ["diagonal", "full"]}``.

    Values are read as YAML: numbers, true/false, null, strings, lists.

    Raises:
        InputError: text of another form.
    """
    if not text:
        return {}
    try:
        overrides = yaml.safe_load("{" + text.replace("=", ": ") + "}")
    except yaml.YAMLError:
        overrides = {text: None}
    if any(value is None and f"{name}=" not in text.replace(" ", "") for name, value in overrides.items()):
        raise InputError(f'config_overrides {text!r} cannot be read; write them as "dropout=0.3,hidden_size=480"')
    return overrides
