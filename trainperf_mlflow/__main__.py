"""``python -m trainperf_mlflow`` is the command ``trainperf``."""

from trainperf_mlflow.cli import main

if __name__ == "__main__":
    main()
