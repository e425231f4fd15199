"""Small programs whose graphs break or fail, each with the rewrite that the diagnosis proposes; one process records them all.

``python breaks.py OUT FIRST STEP [NAME...]`` records every STEP-th problem from FIRST on (``0 1`` is all) twice (as is, and fixed) into OUT/<name> and OUT/<name>.fixed,
and writes OUT/results-FIRST.json with what they returned. The line that a diagnosis must name carries ``# HERE``.
"""

import breaks_calls  # noqa: F401
import breaks_data  # noqa: F401
import breaks_modules  # noqa: F401
import users_calls  # noqa: F401
import users_data  # noqa: F401
import users_loops  # noqa: F401
import users_modules  # noqa: F401
from harness import main

if __name__ == "__main__":
    main()
