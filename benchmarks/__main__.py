"""``python -m benchmarks [NAME [--options]]``."""

from benchmarks.harness import main

if __name__ == "__main__":
    main()
