"""What estimates have missed so far, so that the next ones do not: others come meanwhile and overtake, owners
declare too much, runs vary more than their law.

After each start every quantile is moved by a step, so far that in the long run the part of starts that come
before it is the part that it stands for, whatever the reason was (Gibbs and Candès, Adaptive conformal
inference under distribution shift, 2021)."""

from collections.abc import Mapping
from math import exp

import msgspec
from msgspec.structs import replace

from extender.domain.explain.forecast import ExpectedStart, Method

_SHARES = (0.08, 0.5, 0.92)  # of starts before p10, p50 and p90: the interval is rather too wide
_STEP = 0.08  # of the logarithm of a factor, for one start
_MOST = 20.0  # a factor, or one divided by it
SHORTEST = 10.0  # seconds: what comes so soon is on time

_Factors = tuple[float, float, float]


class Calibration(msgspec.Struct, frozen=True):
    """By method the factors of the time until p10, p50 and p90."""

    factors: Mapping[Method, _Factors] = {}

    def _of(self, method: Method) -> _Factors:
        return self.factors.get(method, (1.0, 1.0, 1.0))

    def applied(self, forecast: ExpectedStart) -> ExpectedStart:
        if not forecast.is_known:
            return forecast
        made, moments = forecast.made_at, (forecast.p10, forecast.p50, forecast.p90)
        factors = self._of(forecast.method)
        p10, p50, p90 = sorted(made + (at - made) * n for at, n in zip(moments, factors, strict=True))
        return replace(forecast, p10=p10, p50=p50, p90=p90)

    def after(self, told: ExpectedStart, start: float) -> "Calibration":
        """Once a group has started of which that was told."""
        if not told.is_known:
            return self
        moved = []
        for n, at, share in zip(self._of(told.method), (told.p10, told.p50, told.p90), _SHARES, strict=True):
            step = share if start > max(at, told.made_at + SHORTEST) else share - 1.0
            moved.append(min(max(n * exp(_STEP * step), 1.0 / _MOST), _MOST))
        p10, p50, p90 = moved
        return Calibration({**self.factors, told.method: (p10, p50, p90)})


def interval_of(told: ExpectedStart, start: float) -> str:
    """Whether a start came `before` the interval that was told, `inside` or `after` it."""
    if start > max(told.p90, told.made_at + SHORTEST):
        return "after"
    return "before" if start < told.p10 else "inside"
