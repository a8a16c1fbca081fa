"""Hosts of a small network, made of network namespaces: own addresses, own
/etc/hosts, own host name, and a cable that can be pulled.

    network = Network()           # one switch
    head = network.host("head", "10.77.0.1/24")
    test.start(..., prefix=head.prefix)
    head.unplug(); head.plug()
    network.close()

It needs root: why_not() says what is missing. Names carry this process's id;
what an earlier run left behind because it was killed is removed by the next.
"""

import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

SKIPPED = 77  # the exit code that CTest takes for "skipped"

_ETC = pathlib.Path("/etc/netns")
_NAME = re.compile(r"ddl-e2e-(\d+)-")
_count = itertools.count(1)


def _ip(*args):
    done = subprocess.run(["ip", *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(map(str, args))}: {done.stderr.strip()}")
    return done.stdout


def _names():
    return [line.split()[0] for line in _ip("netns", "list").splitlines() if line]


def _remove(name):
    for pid in _ip("netns", "pids", name).split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    _ip("netns", "delete", name)
    shutil.rmtree(_ETC / name, ignore_errors=True)


def _is_dead(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")


def remove_leftovers():
    """What runs that are dead have left: their namespaces and all in them."""
    for name in _names():
        match = _NAME.match(name)
        if match and _is_dead(match[1]):
            _remove(name)
    for directory in _ETC.glob("ddl-e2e-*") if _ETC.is_dir() else ():
        match = _NAME.match(directory.name)
        if match and _is_dead(match[1]):
            shutil.rmtree(directory, ignore_errors=True)


def why_not():
    """None, or one line that says which right or program is missing."""
    for program in ("ip", "unshare"):
        if shutil.which(program) is None:
            return f"the program {program} is missing"
    if os.geteuid() != 0:
        return "not root: network namespaces need CAP_SYS_ADMIN and CAP_NET_ADMIN"
    try:
        remove_leftovers()
        network = Network()
        try:
            network.host("probe", "10.77.0.1/24")
        finally:
            network.close()
    except OSError as error:
        return f"no CAP_SYS_ADMIN or CAP_NET_ADMIN for network namespaces: {error}"
    return None


def skip_without_rights():
    reason = why_not()
    if reason is not None:
        print(f"skipped: {reason}", file=sys.stderr)
        sys.exit(SKIPPED)


class Host:
    """One namespace with a cable to its network's switch."""

    def __init__(self, network, name, hostname):
        self.network = network
        self.name = name
        self.ns = f"{network.name}-{name}"
        self._ports = []
        self._routes_gone = []
        _ip("netns", "add", self.ns)
        network.made.append(self.ns)
        # As if it were another machine; exec'd, so the pid stays the one asked for.
        self.prefix = ["ip", "netns", "exec", self.ns, "unshare", "--uts", "--", "sh", "-c",
                       'hostname "$0" && exec "$@"', hostname]
        # A duplicate address check would keep IPv6 addresses waiting for a second.
        self.sysctl("net/ipv6/conf/default/accept_dad", 0)
        _ip("-n", self.ns, "link", "set", "lo", "up")

    def sysctl(self, key, value):
        subprocess.run(["ip", "netns", "exec", self.ns, "sh", "-c",
                        f"echo {value} > /proc/sys/{key}"], check=True)

    def etc(self, file, text):
        """Its own /etc/FILE, for what is started from now on."""
        directory = _ETC / self.ns
        directory.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(text)

    def add_interface(self, *addresses):
        number = len(self._ports)
        port = f"{self.name}{number}"
        _ip("link", "add", f"eth{number}", "netns", self.ns, "type", "veth", "peer", "name", port,
            "netns", self.network.switch)
        _ip("-n", self.network.switch, "link", "set", port, "master", "switch", "up")
        self._ports.append(port)
        for address in addresses:
            nodad = ["nodad"] if ":" in address else []
            _ip("-n", self.ns, "address", "add", address, "dev", f"eth{number}", *nodad)
        _ip("-n", self.ns, "link", "set", f"eth{number}", "up")

    def ip(self, *args):
        return _ip("-n", self.ns, *args)

    def unplug(self):
        """Pulls the cables: the interfaces stay, nothing passes."""
        for port in self._ports:
            _ip("-n", self.network.switch, "link", "set", port, "down")

    def plug(self):
        for port in self._ports:
            _ip("-n", self.network.switch, "link", "set", port, "up")

    def throttle(self, rate):
        """What it sends leaves at this rate ("200kbit")."""
        subprocess.run(["tc", "-n", self.ns, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
                        rate, "burst", "3kb", "latency", "2s"], check=True)


class Network:
    """A switch; hosts are plugged into it."""

    def __init__(self):
        self.name = f"ddl-e2e-{os.getpid()}-{next(_count)}"
        self.switch = f"{self.name}-switch"
        self.made = []
        _ip("netns", "add", self.switch)
        self.made.append(self.switch)
        try:
            _ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
            _ip("-n", self.switch, "link", "set", "switch", "up")
        except OSError:
            self.close()
            raise

    def host(self, name, *addresses, hosts="", hostname=None):
        """`hosts`: lines of its /etc/hosts beyond localhost. It knows no name server."""
        host = Host(self, name, hostname or name)
        host.etc("hosts", "127.0.0.1 localhost\n::1 localhost\n" + hosts)
        host.etc("resolv.conf", "")
        host.add_interface(*addresses)
        return host

    def close(self):
        for name in reversed(self.made):
            _remove(name)
        self.made.clear()
