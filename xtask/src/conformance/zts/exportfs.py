#!/usr/bin/env python3
"""exportfs(8) for the suite: the shares that tarnd says it has.

`exportfs -s` and `exportfs -v` print a line for each path and client, in the form of nfs-utils.
Paths and clients come from the server, by EXPORT of the MOUNT protocol (RFC 1813, appendix I).
It does not tell options: they are the property `sharenfs` of the dataset that is mounted there.
Shares that another program than `zfs` makes do not exist here: `exportfs CLIENT:PATH` fails.
"""

import os
import socket
import struct
import subprocess
import sys

MOUNT, VERSION, EXPORT = 100005, 3, 5


class Results:
    """The results of a procedure, in XDR."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self):
        (value,) = struct.unpack_from(">I", self.data, self.at)
        self.at += 4
        return value

    def text(self):
        length = self.number()
        found = self.data[self.at : self.at + length]
        self.at += (length + 3) // 4 * 4
        return found


def ask(port):
    """What follows the reply's head."""
    try:
        stream = socket.create_connection(("127.0.0.1", port), timeout=60)
    except ConnectionRefusedError:
        # tarnd listens while something is shared: an empty list.
        return Results(struct.pack(">I", 0))
    with stream:
        # A call of RPC version 2, with AUTH_NONE twice.
        call = struct.pack(">10I", 1, 0, 2, MOUNT, VERSION, EXPORT, 0, 0, 0, 0)
        stream.sendall(struct.pack(">I", 1 << 31 | len(call)) + call)
        stream.shutdown(socket.SHUT_WR)
        replies = stream.makefile("rb")
        reply, is_last = b"", False
        while not is_last:
            (mark,) = struct.unpack(">I", replies.read(4))
            is_last = mark >> 31 == 1
            reply += replies.read(mark & 0x7FFFFFFF)
    if struct.unpack_from(">6I", reply) != (1, 1, 0, 0, 0, 0):
        sys.exit("exportfs: the server refuses EXPORT")
    return Results(reply[24:])


def shares(results):
    """Each path with its clients; `*` where anybody may mount it."""
    while results.number():
        path, clients = results.text(), []
        while results.number():
            # nfs-utils writes IPv6 addresses without brackets.
            clients.append(results.text().decode().replace("[", "").replace("]", ""))
        yield path, clients or ["*"]


def options():
    """The property of each mountpoint."""
    listed = subprocess.run(
        ["zfs", "list", "-H", "-t", "filesystem", "-o", "mountpoint,sharenfs"],
        stdout=subprocess.PIPE,
        check=True,
    )
    return dict(line.rsplit(b"\t", 1) for line in listed.stdout.splitlines() if b"\t" in line)


def escaped(path):
    """As in /etc/exports: white space in octal."""
    return "".join(f"\\{byte:03o}" if byte in b" \t\n\\" else chr(byte) for byte in path)


def main():
    if any(not word.startswith("-") for word in sys.argv[1:]):
        sys.exit("exportfs: tarnd shares file systems by the property sharenfs only")
    found = list(shares(ask(int(os.environ["TARN_NFS_PORT"]))))
    told = options() if "-v" in sys.argv[1:] else {}
    for path, clients in found:
        for client in clients:
            print(f"{escaped(path)}\t{client}({told.get(path, b'').decode()})")


main()
