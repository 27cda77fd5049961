"""The pure core: what a fleet needs, given what was seen.

Nothing here does I/O, reads a clock, logs, or draws a random number. Time arrives as
:class:`~scaler.core.model.Now`; memory arrives as a ``ScalerState`` and leaves as a new one.
The same code runs in production and in replay.
"""
