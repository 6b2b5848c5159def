"""Tests traces: arrays, frames and files of the same requests give the same trace."""

import pickle
from array import array
from datetime import datetime, timedelta, timezone

import pytest
from conftest import optional
from edgeward_sim import Trace


def rows(trace: Trace) -> list[tuple[float, int, int]]:
    columns = trace.to_numpy()
    return list(zip(columns.time.tolist(), columns.key.tolist(), columns.size.tolist(), strict=True))


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_trace_from_its_own_frame_is_equal(trace, kind):
    optional(kind)
    frame = getattr(trace, f"to_{kind}")()
    assert list(frame.columns) == ["time", "key", "size"]
    assert rows(Trace.from_dataframe(frame)) == rows(trace)


@pytest.mark.parametrize("name", ["t.csv", "t.txt.zst"])
def test_a_trace_from_its_own_file_is_equal(trace, files, name):
    read = Trace.read(files / name)
    assert rows(read) == rows(trace)
    assert read.name == str(files / name)


@pytest.mark.parametrize("name", ["t.oracleGeneral", "t.lrb.gz"])
def test_formats_of_whole_seconds_keep_all_but_the_milliseconds(trace, files, name):
    assert rows(Trace.read(files / name)) == [(time // 1, key, size) for time, key, size in rows(trace)]


def test_an_access_log_has_the_same_objects(trace, files):
    assert Trace.read(files / "t.log").facts() == trace.facts()


def test_several_files_are_read_as_one_trace_and_the_number_of_requests_is_limited(trace, files):
    read = Trace.read([files / "t.csv", files / "t.txt.zst"], requests=len(trace) + 5)
    assert rows(read) == rows(trace) + rows(trace)[:5]


def test_generated_traces_equal_those_of_the_command(edgeward, trace, tmp_path):
    edgeward("trace", "generate", "--preset", "web", "--requests", 20_000, "--seed", 7, "--output", tmp_path / "t.csv")
    assert rows(Trace.read(tmp_path / "t.csv")) == rows(trace)


def test_keys_of_texts_are_those_that_the_csv_reader_returns(tmp_path):
    keys = ["/a.png", "7", "007", "18446744073709551615", "18446744073709551616", "ü", "-1"]
    (tmp_path / "t.csv").write_text("time,key,size\n" + "".join(f"0,{key},1\n" for key in keys))
    from_file = Trace.read(tmp_path / "t.csv").to_numpy().key.tolist()
    assert Trace.from_arrays(keys, [1] * len(keys)).to_numpy().key.tolist() == from_file
    as_bytes = [key.encode() for key in keys]
    assert Trace.from_arrays(as_bytes, [1] * len(keys)).to_numpy().key.tolist() == from_file
    assert from_file[1] == 7 and from_file[2] != 7 and from_file[3] == 2**64 - 1


def test_texts_in_columns_of_numpy_pandas_and_polars_have_the_same_keys():
    numpy, pandas, polars = (optional(name) for name in ("numpy", "pandas", "polars"))
    keys, sizes = ["/a", "/b", "/a"], [1, 2, 1]
    expected = Trace.from_arrays(keys, sizes).to_numpy().key.tolist()
    for column in (
        numpy.array(keys),
        numpy.array(keys, dtype=object),
        numpy.array([key.encode() for key in keys]),
        pandas.Series(keys),
        pandas.Series(keys, dtype="category"),
        polars.Series(keys),
        polars.Series(keys, dtype=polars.Categorical),
    ):
        assert Trace.from_arrays(column, sizes).to_numpy().key.tolist() == expected, type(column)


def test_integer_keys_keep_their_64_bits():
    numpy = optional("numpy")
    every = [0, 1, -1, 2**63 - 1, -(2**63)]
    expected = [key % 2**64 for key in every]
    columns = [every, numpy.array(every), array("q", every), numpy.array(every * 2)[::1][:5]]
    for column in columns:
        assert Trace.from_arrays(column, [1] * 5).to_numpy().key.tolist() == expected
    narrow = numpy.array([3, 5], dtype=">i2")
    assert Trace.from_arrays(narrow, narrow).to_numpy().size.tolist() == [3, 5]
    strided = numpy.arange(10, dtype="uint64")[::3]
    assert Trace.from_arrays(strided, strided).to_numpy().key.tolist() == [0, 3, 6, 9]


def test_dates_and_seconds_are_the_same_times():
    numpy, pandas, polars = (optional(name) for name in ("numpy", "pandas", "polars"))
    dates = [datetime(2026, 11, 23, 18, 0, 0, 125_000) + timedelta(hours=hour) for hour in range(3)]
    utc = [date.replace(tzinfo=timezone.utc) for date in dates]
    seconds = [date.timestamp() for date in utc]
    zone = timezone(timedelta(hours=2))
    for column in (
        seconds,
        numpy.array(seconds),
        dates,
        utc,
        [date.astimezone(zone) for date in utc],
        numpy.array(dates, dtype="datetime64[us]"),
        pandas.Series(dates),
        pandas.Series(utc).dt.tz_convert("Asia/Tokyo"),
        polars.Series(dates),
        polars.Series(utc).dt.convert_time_zone("Asia/Tokyo"),
    ):
        assert Trace.from_arrays([1, 2, 3], [1, 1, 1], column).to_numpy().time.tolist() == seconds, column
    assert Trace.from_arrays([1], [1], [1.001]).to_numpy().time.tolist() == [1.001]
    assert Trace.from_arrays([1, 2], [1, 1]).to_numpy().time.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("keys", "sizes", "times", "message"),
    [
        ([1], [-1], None, "size 0 is -1"),
        ([1, 2], [1, 0.5], None, "size 1 is 0.5"),
        ([1, 2], [1, float("nan")], None, "size 1 is nan"),
        ([1], [2**64], None, "size 0 is"),
        ([1], [True], None, "size 0 is True"),
        ([1.0], [1], None, "key 0 is 1.0"),
        ([1, None], [1, 1], None, "key 0 is 1;"),
        (["a", None], [1, 1], None, "key 1 is None"),
        ([2**64], [1], None, "more than 64 bits"),
        ([1], [1], [-1], "time 0 is -1"),
        ([1], [1], [float("nan")], "time 0 is nan"),
        ([1], [1], [2**61], "time 0 is 2305843009213693952"),
        ([1], [1], ["now"], "time 0 is now"),
        ([1, 2], [1], None, "2 keys and 1 sizes"),
    ],
)
def test_invalid_columns_are_refused_with_the_row(keys, sizes, times, message):
    with pytest.raises(ValueError, match=message):
        Trace.from_arrays(keys, sizes, times)
    numpy = optional("numpy")
    if all(isinstance(value, (int, float)) for value in [*keys, *sizes, *(times or [])]):
        with pytest.raises(ValueError, match=r"size|key|time"):
            Trace.from_arrays(numpy.array(keys), numpy.array(sizes), None if times is None else numpy.array(times))


def test_a_missing_column_is_refused_with_the_columns_of_the_frame(trace):
    optional("pandas")
    with pytest.raises(ValueError, match="no column `url`; it has time, key, size"):
        Trace.from_dataframe(trace.to_pandas(), key="url")


def test_a_malformed_line_is_refused_with_file_and_line_or_skipped_with_a_warning(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("time,url,bytes\n0,/a,5\n1,/b,many\n2,/a,5\n")
    columns = {"key": "url", "size": 3}
    with pytest.raises(ValueError, match=r"(?s)size is `many`.*in .*t.csv, line 3.*hint: .*--skip-malformed"):
        Trace.read(path, columns=columns)
    with pytest.warns(UserWarning, match="1 malformed lines"):
        assert len(Trace.read(path, columns=columns, skip_malformed=True)) == 2


def test_a_missing_file_is_an_error_of_the_system_with_its_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: .*none\.csv") as error:
        Trace.read(tmp_path / "none.csv")
    assert error.value.filename == str(tmp_path / "none.csv")


def test_a_pickled_trace_is_equal(trace):
    copy = pickle.loads(pickle.dumps(trace))
    assert (copy.name, rows(copy)) == (trace.name, rows(trace))
