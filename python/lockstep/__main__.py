"""`python -m lockstep ...` is `lockstep ...`."""
from .program import main

main()
