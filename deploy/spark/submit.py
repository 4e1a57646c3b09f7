"""qdaudit for spark-submit: the verbs are its arguments.

spark-submit --master spark://host:7077 --py-files palisade.zip submit.py denials /shared/table
"""

import sys

from spark.cli import main

if __name__ == "__main__":
    sys.exit(main())
