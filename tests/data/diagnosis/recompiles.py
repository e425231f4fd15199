"""Small programs that recompile, one per kind of cause, each with the change that the diagnosis proposes; one process records them all.

``users_*`` are re-told from public issues and forum threads, with what an expert answers.
"""

import recompiles_objects  # noqa: F401
import recompiles_shapes  # noqa: F401
import recompiles_state  # noqa: F401
import recompiles_values  # noqa: F401
import users_library  # noqa: F401
import users_objects  # noqa: F401
import users_shapes  # noqa: F401
import users_state  # noqa: F401
import users_values  # noqa: F401
from harness import main

if __name__ == "__main__":
    main()
