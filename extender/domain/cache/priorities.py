"""Priority classes: what a name stands for, and what counts where none is named."""


class Priorities:
    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._default: str | None = None

    def put(self, name: str, value: int | None, is_default: bool) -> None:
        """`value` None: the class is gone."""
        if value is None:
            self._values.pop(name, None)
        else:
            self._values[name] = value
        if is_default:
            self._default = name

    def value(self, name: str) -> int:
        """Of the class of this name, or of the default one where it is empty; 0 for one that is not there."""
        return self._values.get(name or self._default or "", 0)
