"""No password reaches a terminal, a file, a page or the store."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.cli import options as cli_options
from ablate.cli.serve import token_of
from ablate.errors import AblateError, StoreError
from ablate.machine import provenance
from ablate.store.database import exists
from ablate.text.masking import masked
from tests.conftest import Say

URL = "postgresql+psycopg://ada:s3cret@db.example:5432/ablate"
HIDDEN = "postgresql+psycopg://ada:***@db.example:5432/ablate"
# Texts with nothing to hide.
PLAIN = (
    "the store postgresql+psycopg://ada@127.0.0.1:5432/rs cannot be written to: server"
    " closed; go on with --store postgresql+psycopg://ada@127.0.0.1:5432/rs",
    "--store mysql://localhost:3306/db cannot be used: write postgresql://USER@HOST/DB",
    "http://127.0.0.1:1/x.db is no store; postgresql+psycopg://USER@HOST/DB is",
    "'postgresql://localhost:5432' or me@here",
    "see https://example.org: write to me@example.org",
    "postgresql://[::1]:5432/db and a@b",
    "cls_token=1, mix_token=0.1, seed 0",
    "invalid password: the server said no",
    "pad_token: 5, token: 17, --max-token 128, --pad-token x, sort key: name",
    "ssh://git@github.com/a/b",
    "a basic transformation, and basic augmentations of 64 tokens",
    "no secrets here",
)
# Put together, so that no scanner of repositories takes them for secrets.
TOKENS = (
    "ghp_" + "a1B2" * 9,
    "github_" + "pat_" + "a1B2" * 9,
    "hf_" + "aBcD" * 8,
    "AKIA" + "IOSFODNN7EXAMPLE",
    "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln",
    "glpat-" + "a1B2" * 5,
)
PEM = "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIE\nAbC=\n-----END RSA PRIVATE KEY-----"
NAMED = [
    ("aws_secret_access_key=AbC+/x= next", "aws_secret_access_key=*** next"),
    ("access_token=abc&x=1", "access_token=***&x=1"),
    ("client_secret=abc", "client_secret=***"),
    ("https://a/b?sv=1&sig=Ab%2F&se=2", "https://a/b?sv=1&sig=***&se=2"),
    ("?sas_token=abc", "?sas_token=***"),
    ("WANDB_API_KEY=abc ablate run", "WANDB_API_KEY=*** ablate run"),
    ("PGPASSWORD=abc psql", "PGPASSWORD=*** psql"),
    ("password='with blank' dbname=d", "password=*** dbname=d"),
    ('password = "with blank" x', "password = *** x"),
    ('{"password": "with blank"}', '{"password": ***}'),
    ("AccountKey=abc;x", "AccountKey=***"),
    ("HF_TOKEN=abc", "HF_TOKEN=***"),
    ("Authorization: Bearer abcdefghijklmn0p", "Authorization: Bearer ***"),
    ("authorization: basic dXNlcjpwYXNz", "authorization: basic ***"),
    ("postgresql://ada:12345@h/d", "postgresql://ada:***@h/d"),
    ("postgresql://ada:s3@cret@h/d", "postgresql://ada:***@h/d"),
    ("--password s3cret x", "--password *** x"),
    ("--db-password=s3cret", "--db-password=***"),
    ("--api-key 's3 cret' x", "--api-key *** x"),
    ("password: s3cret", "password: ***"),
    ("api_key: s3cret # mine", "api_key: *** # mine"),
    ("X-Api-Key: s3cret", "X-Api-Key: ***"),
    ("DB_PASS=s3cret", "DB_PASS=***"),
    ("MY_TOKEN=s3cret", "MY_TOKEN=***"),
    ("('password', 's3cret')", "('password', ***)"),
    ("https://s3cret-s3cret-s3cret@h/d", "https://***@h/d"),
    *((f"found {token}.", "found ***.") for token in TOKENS),
    (f"{PEM}\nnext", "***\nnext"),
    ("postgresql://ada:123/45@h/d", "postgresql://ada:***@h/d"),
]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (URL, HIDDEN),
        (f"--store {URL} --cpus 2", f"--store {HIDDEN} --cpus 2"),
        (f"two: {URL}, {URL}", f"two: {HIDDEN}, {HIDDEN}"),
        ("postgresql://:s3cret@h/d", "postgresql://:***@h/d"),
        (
            "postgresql+psycopg://us@srv:s3cret@h/d",
            "postgresql+psycopg://us@srv:***@h/d",
        ),
        ("postgresql://ada:s3'cret@h/d", "postgresql://ada:***@h/d"),
        ('postgresql://ada:s3"cret@h/d', "postgresql://ada:***@h/d"),
        ("postgresql://ada:s3 cret@h/d", "postgresql://ada:***@h/d"),
        ("postgresql://ada:a/b:c@h/d", "postgresql://ada:***@h/d"),
        (
            "postgresql://h/d?user=ada&password=s3cret&x=1",
            "postgresql://h/d?user=ada&password=***&x=1",
        ),
        ("s3://key:secret@bucket/path", "s3://key:***@bucket/path"),
        ("host=h password=s3cret dbname=d", "host=h password=*** dbname=d"),
        (
            "ablate dashboard --token sesame --port 1",
            "ablate dashboard --token *** --port 1",
        ),
        ("ablate dashboard --token=sesame", "ablate dashboard --token=***"),
        ("ablate dashboard --token NEW", "ablate dashboard --token NEW"),
        ("postgresql://ada@h/d", "postgresql://ada@h/d"),
        ("sqlite:///runs/a@b.db", "sqlite:///runs/a@b.db"),
        ("runs/ablate.db", "runs/ablate.db"),
        ("http://localhost:8501/?x=1", "http://localhost:8501/?x=1"),
        *((text, text) for text in PLAIN),
        *NAMED,
    ],
)
def test_passwords_are_masked_in_any_text(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.proof
@given(
    st.text("abcXYZ019-_.~!$&*+,;=%/?#[]", min_size=1),
    st.text(max_size=30),
    st.text(max_size=30),
)
def test_no_password_of_a_url_is_left_in_a_text(
    password: str, before: str, after: str
) -> None:
    secret = f"pw{password}pw"
    assert secret not in masked(
        f"{before} postgresql://ada:{secret}@host/db {after}"
    ).replace(before, "").replace(after, "")


@pytest.mark.parametrize(
    "unit",
    [
        *("x", "x://", "a:", "://", "x://a:", "@", "password", "token=", "k-", "' \""),
        *("eyJ-", "--a-", "sk-", "x://a:b@", "-----BEGIN PRIVATE KEY-----"),
    ],
)
def test_masking_takes_linear_time(unit: str) -> None:
    """A user's error may have any length."""
    text = unit * (500_000 // len(unit))
    began = time.process_time()
    masked(text)
    assert time.process_time() - began < 5


def test_the_stored_command_has_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ablate", "run", "x.yaml", "--store", URL])
    assert provenance.collect().command == f"ablate run x.yaml --store {HIDDEN}"


def test_a_store_that_the_environment_names_needs_no_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ABLATE_STORE", raising=False)
    assert "s3cret" not in cli_options.place_of(URL, Path("runs"))
    assert (
        cli_options.place_of(URL, Path("my runs"))
        == f" --runs 'my runs' --store '{HIDDEN}'"
    )
    monkeypatch.setenv("ABLATE_STORE", URL)
    assert cli_options.place_of(URL, Path("runs")) == ""


@pytest.mark.proof
def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(StoreError) as refused:
        exists("postgresql+psycopg://ada:s3cret@127.0.0.1:1/ablate")
    assert "s3cret" not in str(refused.value)
    assert "ada:***@127.0.0.1:1" in str(refused.value)


def test_the_token_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ABLATE_TOKEN", raising=False)
    file = tmp_path / "token"
    file.write_text("sesame\n")
    assert token_of("", file) == "sesame"
    assert token_of("word", None) == "word"
    for word in ("", "NEW"):
        assert len(token_of(word, None)) > 16
        assert token_of(word, None) != token_of(word, None)
    monkeypatch.setenv("ABLATE_TOKEN", "from the environment")
    assert token_of("", None) == "from the environment"
    with pytest.raises(AblateError, match="exclude each other"):
        token_of("word", file)
    for content in ("two words", "", "\x1b[2J"):
        file.write_text(content)
        with pytest.raises(AblateError, match="holds no token"):
            token_of("", file)
    # Not UTF-8, as it arrives from a command line.
    with pytest.raises(AblateError, match="letters and digits"):
        token_of("\udcff", None)
    with pytest.raises(AblateError, match="cannot be read"):
        token_of("", tmp_path)


def test_the_environment_names_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ablate.cli import main

    monkeypatch.setitem(os.environ, "ABLATE_STORE", str(tmp_path / "elsewhere.db"))
    monkeypatch.setattr(sys, "argv", ["ablate", "status"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "elsewhere.db" in capsys.readouterr().err


def test_the_stored_error_of_a_trial_holds_no_password(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "tr0ub4dor"

    def fail(*_: object) -> None:
        raise RuntimeError(f"cannot reach postgresql://ada:{secret}@host/db")

    monkeypatch.setattr("ablate.training.loop.Training._train", fail)
    code, _, err = say("run", "tiny.yaml", "--executor", "inline")
    assert code == 1
    assert secret not in err
    content = (tmp_path / "runs" / "ablate.db").read_bytes()
    assert b"cannot reach postgresql://ada:***@host/db" in content
    assert secret.encode() not in content
