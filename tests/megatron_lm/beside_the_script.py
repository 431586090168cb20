"""Imported by the script as a module that lies beside it."""

NAME = "beside"
