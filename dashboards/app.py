"""The dashboard: `ablate dashboard` serves it.

Every file in `screens/` is a page; nothing here can write to the store. The folder is
not called `pages`, because Streamlit would serve such files by itself. `server.py`
serves this script, and `guard.py` decides who may see it.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from failures import tell
from links import register

# Streamlit leaves six rem above a page, and lets choices scroll out of a phone.
STYLE = """
[data-testid="stMainBlockContainer"] { padding-top: 4rem; padding-bottom: 2rem; }
[data-testid="stButtonGroup"] > div { flex-wrap: wrap; }
"""
ICONS = {
    "studies": ":material/science:",
    "study": ":material/analytics:",
    "trial": ":material/model_training:",
    "compare": ":material/compare_arrows:",
    "sql": ":material/database:",
    "published": ":material/menu_book:",
}


def pages() -> list[st.Page]:
    """A page for each file in `screens/`, in the order of its number: `3_trial.py` is
    the page Trial at /trial.
    """
    pages: list[st.Page] = []
    for file in sorted((Path(__file__).parent / "screens").glob("[0-9]*_*.py")):
        name = file.stem.partition("_")[2]
        title = "SQL" if name == "sql" else name.replace("_", " ").capitalize()
        page = st.Page(
            file,
            title=title,
            url_path=name,
            icon=ICONS.get(name, ":material/article:"),
            default=not pages,
        )
        register(name, page)
        pages.append(page)
    return pages


def main() -> None:
    """Shows the chosen page, with its errors."""
    # Streamlit's own export writes formulas as they are; pages have a button that marks
    # them (`ablate.escape.csv`).
    st.set_option("client.disableDataExport", True)
    st.set_page_config(
        page_title="ablate",
        page_icon=str(Path(__file__).parent / "icon.png"),
        layout="wide",
    )
    st.html(f"<style>{STYLE}</style>")
    chosen = st.navigation(pages(), position="top")
    try:
        chosen.run()
    except Exception as error:
        tell(error)


main()
