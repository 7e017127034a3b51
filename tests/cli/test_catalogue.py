import subprocess
import sys

from shoal.cli import catalogue
from shoal.cli.info import overview


def test_the_file_lists_what_there_is():
    """If not: `python -m shoal.cli.catalogue` writes it anew."""
    assert catalogue.FILE.read_text(encoding="utf-8") == overview()


def test_help_and_list_do_not_wait_for_jax():
    for word in ("--help", "list"):
        code = f"from shoal.cli.main import main; main([{word!r}])"
        code = f"import sys; {code}; print('jax' in sys.modules)"
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        assert out.splitlines()[-1] == "False", word
