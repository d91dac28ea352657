"""The writer and the reader of one run."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from ablate.store.database import exists
from ablate.store.reader import Reader

if TYPE_CHECKING:
    from ablate.store.writer import Writer


class StoreSession:
    """Opens a store for one run, and closes it at the end.

    A store that does not exist is made by `create`, so that a space that is refused
    leaves nothing behind.

    Raises:
        StoreError: the store cannot be opened, or another driver holds it.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened = ExitStack()
        self._writer: Writer | None = None
        self._reader: Reader | None = None

    def __enter__(self) -> Self:
        if exists(self._url):
            self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _open(self) -> None:
        from ablate.store.writer import Writer

        # The writer first: it brings an older store up to date.
        self._writer = self._opened.enter_context(Writer(self._url))
        self._reader = self._opened.enter_context(Reader(self._url))

    @property
    def exists(self) -> bool:
        """Whether the store exists."""
        return self._writer is not None

    def create(self) -> bool:
        """Makes the store.

        Returns:
            whether another driver has stored studies in it meanwhile.
        """
        self._open()
        return bool(self.reader.studies.all())

    @property
    def writer(self) -> Writer:
        assert self._writer is not None, "the store is not made yet"
        return self._writer

    @property
    def reader(self) -> Reader:
        assert self._reader is not None, "the store is not made yet"
        return self._reader

    @property
    def reader_if_any(self) -> Reader | None:
        """The reader, or None if the store is not made yet."""
        return self._reader
