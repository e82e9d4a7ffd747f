#!/bin/sh
# The first process of a machine of the lab: makes its root, devices and mounts, and then reaps whatever dies in it.
#
# usage: boot.sh DIRECTORY SYSTEM NAME HIERARCHIES [SOURCE TARGET]...
#   DIRECTORY    belongs to the machine alone: what it writes to its root goes to DIRECTORY/upper
#   SYSTEM       the files of its operating system, shared with other machines and never written to
#   HIERARCHIES  the cgroup hierarchies to mount, separated by blanks, as /proc/self/cgroup names them
#   SOURCE       a file or directory of the host that is visible in the machine as TARGET
#
# It runs in namespaces of its own (mount, pid, net, uts, ipc, cgroup), so all of this ends with it.
set -eu
directory=$1 system=$2 name=$3 hierarchies=$4
shift 4

read -r pid rest < /proc/self/stat # /proc is still the host's, so this is the number by which the host knows us
echo "$pid" > "$directory/pid"

root=$directory/root
mkdir -p "$root" "$directory/upper" "$directory/work" "$directory/proc"
mount -t overlay overlay -o "lowerdir=$system,upperdir=$directory/upper,workdir=$directory/work" "$root"
cd "$root"
mkdir -p proc sys dev run tmp etc .host

mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp

mount -t tmpfs -o mode=755 dev dev
mkdir dev/pts dev/shm dev/mqueue
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts dev/pts
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t mqueue mqueue dev/mqueue
device() { mknod -m "$2" "dev/$1" c "$3" "$4"; }
device null 666 1 3
device zero 666 1 5
device full 666 1 7
device random 666 1 8
device urandom 666 1 9
device kmsg 644 1 11
device tty 666 5 0
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd

mount -t tmpfs -o mode=755 cgroup sys/fs/cgroup
for hierarchy in $hierarchies; do
	at=sys/fs/cgroup/${hierarchy#name=}
	mkdir "$at"
	case $hierarchy in name=*) hierarchy=none,$hierarchy ;; esac
	mount -t cgroup -o "$hierarchy" cgroup "$at"
done

# Some files of /proc speak of the whole host. A machine has a boot id of its own, new at each start. The others are the
# values that a kubelet sets; it leaves them alone where it finds them, and so the host's stay as they are.
ours() {
	file=$directory/proc/$(echo "$1" | tr / -)
	echo "$2" > "$file"
	if [ -e "proc/sys/$1" ]; then mount --bind "$file" "proc/sys/$1"; fi
}
ours kernel/random/boot_id "$(cat /proc/sys/kernel/random/uuid)"
ours kernel/panic 10
ours kernel/panic_on_oops 1
ours kernel/keys/root_maxkeys 1000000
ours kernel/keys/root_maxbytes 25000000
ours vm/overcommit_memory 1
ours vm/panic_on_oom 0

while [ $# -gt 0 ]; do
	if [ -d "$1" ]; then mkdir -p ".$2"; else mkdir -p ".${2%/*}" && : > ".$2"; fi
	mount --bind "$1" ".$2"
	shift 2
done

echo "$name" > proc/sys/kernel/hostname
echo "$name" > etc/hostname
echo "127.0.0.1 localhost $name" > etc/hosts
echo "root:x:0:0:root:/root:/bin/sh" > etc/passwd
echo "root:x:0:" > etc/group
: > etc/resolv.conf
# Made once: it stays with the disk, and by it a node that boots is told from another one that has its name.
if [ ! -s etc/machine-id ]; then tr -d - < /proc/sys/kernel/random/uuid > etc/machine-id; fi
ip link set lo up

pivot_root . .host
umount -l /.host
mount --make-rshared / # a kubelet expects that mounts of containers can be shared
echo ready
exec /bin/sh -c 'while :; do sleep 86400 & wait; done'
