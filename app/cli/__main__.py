"""`python -m app.cli`: the fedarena command of this source tree."""

from app.cli import main

main()
