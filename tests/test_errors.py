"""What a person reads of an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError

from kappa.errors import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_the_line_of_an_error_of_java_says_what_happened_there(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None and spark.sparkContext._gateway is not None
    empty = spark.sparkContext._gateway.new_array(jvm.java.lang.String, 0)
    with pytest.raises(Py4JJavaError) as raised:
        jvm.java.nio.file.Files.size(jvm.java.nio.file.Path.of("no-such-file", empty))
    assert first_line(raised.value) == "java.nio.file.NoSuchFileException: no-such-file"


def test_the_first_line_moves_no_cursor() -> None:
    assert first_line(ValueError("The value '\x1b[2Jä\r\n' is no number")) == "The value '\\x1b[2Jä"


def test_other_errors_have_their_first_line() -> None:
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(ValueError("An error occurred while calling nobody")) == "An error occurred while calling nobody"
    assert first_line(ValueError()) == ""
