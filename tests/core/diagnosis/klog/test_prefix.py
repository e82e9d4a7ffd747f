"""Prefixes: every way a log shows a kernel message, and no other lines."""

from __future__ import annotations

import pytest

from healthd.core.diagnosis.klog import parse_line, parse_message, unescape

SAID = "NVRM: Xid (PCI:0000:4f:00): 63, pid=77, name=train, Row Remapper"

KERNEL_PREFIXES = {
    "bare": "",
    "indented": "      ",
    "dmesg": "[ 8123.004512] ",
    "dmesg with caller": "[ 8123.004512] [  T2210] ",
    "dmesg with cpu as caller": "[ 8123.004512][   C17] ",
    "dmesg with delta": "[ 8123.004512 <    0.000031>] ",
    "dmesg with delta alone": "[<    0.000031>] ",
    "dmesg -T with delta": "[Tue Apr  7 03:14:15 2026 <    0.000031>] ",
    "dmesg at boot": "[    0.000000] ",
    "dmesg of a fixture": "[10.5] ",
    "dmesg -T": "[Tue Apr  7 03:14:15 2026] ",
    "dmesg -T with caller": "[Tue Apr  7 03:14:15 2026] [  T2210] ",
    "dmesg -T, German": "[Di Apr  7 03:14:15 2026] ",
    "dmesg -T, French": "[mar. avril  7 03:14:15 2026] ",
    "dmesg -T of a journal": "[Tue Apr  7 03:14:15 2026] node17 kernel: ",
    "dmesg --reltime": "[Apr 7 03:14] ",
    "dmesg --reltime, next": "[  +0.000021] ",
    "dmesg --time-format iso": "2026-04-07T03:14:15,004512+02:00 ",
    "dmesg --decode": "kern  :err   : [ 8123.004512] ",
    "dmesg --decode -T": "kern  :warn  : [Tue Apr  7 03:14:15 2026] ",
    "dmesg --decode, iso": "kern  :crit  : 2026-04-07T03:14:15,004512+00:00 ",
    "dmesg --decode, iso, caller": "kern  :crit  : 2026-04-07T03:14:15,004512+00:00 [  T2210] ",
    "dmesg --raw": "<3>[ 8123.004512] ",
    "dmesg --color": "\x1b[32m[ 8123.004512] \x1b[0m\x1b[33m",
    "dmesg --color through cat -v": "^[[32m[ 8123.004512] ^[[0m^[[33m",
    "grep --color": "[ 8123.004512] \x1b[01;31m\x1b[K\x1b[m\x1b[K",
    "raw record": "3,9917,8123004512,-;",
    "raw record with caller": "4,9917,8123004512,-,caller=T2210;",
    "raw record, continued": "4,9917,8123004512,c;",
    "raw record of an old kernel": "4,9917,8123004512;",
    "raw record of netconsole": "4,9917,8123004512,-,caller=T2210,ncfrag=0/33;",
    "netconsole by way of syslog": "Apr  7 03:14:15 10.0.3.4 [ 8123.004512] ",
    "syslog": "Apr  7 03:14:15 node17 kernel: [ 8123.004512] ",
    "syslog without stamp": "Apr  7 03:14:15 node17 kernel: ",
    "syslog without a host": "Apr  7 03:14:15 kernel: [ 8123.004512] ",
    "syslog of a switch": "2026 Apr  7 03:14:15 node17 kernel: ",
    "syslog that passed a relay": "Apr  7 03:14:15 relay3 kernel: Apr  7 03:14:14 node17 kernel: [ 8123.004512] ",
    "syslog within a syslog": "kernel: Apr  7 03:14:15 kernel: ",
    "syslog with level": "<4>Apr  7 03:14:15 node17 kernel: ",
    "syslog RFC 5424 with a mark of byte order": "<4>1 2026-04-07T03:14:15Z node17 kernel - - - \ufeff",
    "syslog RFC 5424": "<3>1 2026-04-07T03:14:15.004512+02:00 node17 kernel - - - ",
    "syslog of rsyslog": "2026-04-07T03:14:15.004512+02:00 node17 kernel: [ 8123.004512] ",
    "syslog, German": "7. Apr 03:14:15 node17 kernel: ",
    "syslog, Spanish": "abr 07 03:14:15 node17 kernel: ",
    "syslog, French": "févr. 07 03:14:15 node17 kernel: ",
    "syslog, Russian": "апр 07 03:14:15 node17 kernel: ",
    "syslog, Korean": "4월 07 03:14:15 node17 kernel: ",
    "syslog, Japanese": "4月 07 03:14:15 node17 kernel: ",
    "syslog of OpenWrt": "Tue Apr  7 03:14:15 2026 kern.err kernel: [ 8123.004512] ",
    "syslog with facility": "Apr  7 03:14:15 node17 kern.err kernel: ",
    "journal short-precise": "Apr 07 03:14:15.004512 node17.lab.example kernel: ",
    "journal short-iso": "2026-04-07T03:14:15+0200 node17 kernel: ",
    "journal short-iso-precise": "2026-04-07T03:14:15.004512+0200 node17 kernel: ",
    "journal short-full": "Tue 2026-04-07 03:14:15 CEST node17 kernel: ",
    "journal short-monotonic": "[ 8123.004512] node17 kernel: ",
    "journal short-unix": "1775524455.004512 node17 kernel: ",
    "journal short-unix, shortened": "1775524455.5 node17 kernel: ",
    "journal short-delta": "[ 8123.004512 <    0.000031 >] node17 kernel: ",
    "journal short-delta, first": "[ 8123.004512                ] node17 kernel: ",
    "journal --no-hostname, indented": "     Apr 07 03:14:15 kernel: ",
    "talosctl dmesg": "10.0.3.4: kern:     err: [2026-04-07T03:14:15.004512345Z]: ",
    "host in capitals": "Apr 07 03:14:15 GPU kernel: ",
    "syslog with zone and year": "Tue Apr  7 03:14:15 CEST 2026 node17 kernel: ",
    "tag alone": "kernel: ",
    "tag of a console message": " kernel:",
    "host and tag": "node17 kernel: ",
    "host tag": "node17: [ 8123.004512] ",
    "clock": "03:14:15.004 ",
    "clock and tag": "03:14:15 kernel: ",
    "elided stamp": "[...] ",
    "elided header": "... kernel: ",
    "empty stamp": "[] ",
    "stamp by name": "[timestamp] ",
    "quoted mail": ">> > [ 8123.004512] ",
    "quoted review": "+> [ 8123.004512] ",
    "list": "- [ 8123.004512] ",
    "list of a paste": "- Apr  7 03:14:15 node17 kernel: ",
    "numbered list of a paste": "12. Apr  7 03:14:15 node17 kernel: ",
    "grep over files": "/var/log/kern.log:Apr  7 03:14:15 node17 kernel: ",
    "grep over files, numbered": "/var/log/kern.log:77:Apr  7 03:14:15 node17 kernel: ",
    "grep over a dmesg": "dmesg.1:[ 8123.004512] ",
    "grep -n": "77:[ 8123.004512] ",
    "grep -n, a line around": "78-Apr  7 03:14:15 node17 kernel: ",
    "hypervisor": "2026-04-07T03:14:15.004Z cpu12:2098331)",
}

OTHERS = {
    "a daemon": "Apr  7 03:14:15 node17 kubelet[811]: ",
    "a daemon that quotes the stamp": "Apr  7 03:14:15 node17 agent[811]: [ 8123.004512] ",
    "a daemon that quotes the tag": "Apr  7 03:14:15 node17 agent[811]: kernel: ",
    "a daemon that quotes a whole line": "Apr  7 03:14:15 node17 agent: Apr  7 03:14:15 node17 kernel: ",
    "a container": "2026-04-07T03:14:15.004512Z stderr F ",
    "sudo": "Apr  7 03:14:15 node17 sudo:  op : TTY=pts/1 ; COMMAND=/bin/echo ",
    "logger": "Apr  7 03:14:15 node17 user.err kernel: ",
    "a program that writes to the raw log": "11,9917,8123004512,-;",
    "a program that writes with a level": "<12>",
    "a decoded user facility": "user  :err   : [ 8123.004512] ",
    "JSON": '{"level":"warn","message":"',
    "a log level": "2026-04-07 03:14:15,004 ERROR ",
    "a log level after a date": "Apr  7 03:14:15 WARN ",
    "a log level after a clock": "03:14:15 INFO ",
    "a program that calls itself kernel": "Apr  7 03:14:15 node17 kernel[811]: ",
    "logger on OpenWrt": "Tue Apr  7 03:14:15 2026 user.err kernel: ",
    "a Go log": "2026/04/07 03:14:15 ",
    "a klog header": "W0407 03:14:15.004512       1 watch.go:88] ",
    "a shell": "$ echo ",
    "a word before a stamp": "found: [ 8123.004512] ",
    "JSON that quotes a tag": '{"log":"node17 kernel: ',
    "prose": "we found this: ",
    "a message that repeats": "Apr  7 03:14:15 node17 kernel: message repeated 2 times: [ ",
    "another message": "[ 8123.004512] systemd[1]: ",
    "a log level after a stamp that quotes a stamp": "2026-04-07 03:14:15,004 INFO [ 8123.004512] ",
    "a program's name at a stamp": "agent:[ 8123.004512] ",
    "a container that quotes the stamp": "2026-04-07T03:14:15.004512Z stdout F [ 8123.004512] ",
    "another facility of Talos": "10.0.3.4: user: warning: [2026-04-07T03:14:15.004512345Z]: ",
    "a list of patterns": "- ",
    "a list of a program's lines": "- Apr  7 03:14:15 node17 agent[811]: ",
    "a field of the journal": "    MESSAGE=",
    "a health check": "node17 | ERROR: check failed: [ 8123.004512] ",
    "quotation marks": '"',
    "a shell that is traced": "+ echo ",
    "a daemon that passed a relay": "Apr  7 03:14:15 node17 agent[811]: Apr  7 03:14:14 node17 kernel: ",
}


@pytest.mark.parametrize("prefix", KERNEL_PREFIXES.values(), ids=KERNEL_PREFIXES.keys())
def test_the_message_behind_a_prefix_is_found(prefix: str) -> None:
    line = parse_line(prefix + SAID)

    assert line is not None
    assert line.text == SAID


@pytest.mark.parametrize("prefix", OTHERS.values(), ids=OTHERS.keys())
def test_a_line_of_somebody_else_that_quotes_a_message_is_not_one(prefix: str) -> None:
    line = parse_line(prefix + SAID)

    assert line is None or parse_message(line.text) is None


def test_a_raw_record_gives_its_sequence_number() -> None:
    line = parse_line("6,4711,99,-;usb 1-1: new device")

    assert line is not None
    assert line.sequence == 4711


def test_line_ends_and_markup_around_a_line_are_no_part_of_it() -> None:
    for before, after in (("**", "**\r\n"), ("`", "`"), ("> `", "`"), ("", "\r")):
        line = parse_line(f"{before}[ 1.5] {SAID}{after}")

        assert line is not None
        assert line.text == SAID


def test_escapes_of_a_raw_record_are_undone() -> None:
    assert unescape(r"tab\x09, newline\x0a, back\x5cslash") == "tab\t, newline\n, back\\slash"


def test_escaped_utf8_becomes_its_character_and_broken_utf8_stays() -> None:
    assert unescape(r"caf\xc3\xa9") == "café"
    assert unescape(r"\xff\xfe") == "\xff\xfe"
    assert unescape(r"no escape \xzz") == r"no escape \xzz"
