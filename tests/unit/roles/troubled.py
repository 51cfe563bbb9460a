"""A store that fails once, or from then on, at a change of one's choice."""

from compactor.storage.forwarding import ForwardingStorage


class Troubled(ForwardingStorage):
    """A store whose change number `at` fails, and with `on` every later one; `done`: it happened all the same."""

    def __init__(self, driver, counted, at, error, *, on, done):
        super().__init__(driver)
        self._counted, self._at, self._error, self._on, self._done = counted, at, error, on, done

    def _call(self, call, *changed, of_content=False):
        if not changed:
            return call()
        number = next(self._counted)
        if number == self._at or (self._on and number > self._at):
            if self._done:
                call()
            raise self._error
        return call()
