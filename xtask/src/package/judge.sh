#!/bin/bash
# Runs in the guest at each boot; /judge/phase says which this is.
exec > /dev/ttyS1 2>&1
cd /judge || exit 1
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
failed=0
say() { echo "judge: $*"; }
try() { "$@" || { say "FAILED: $*"; failed=1; }; }
expect() { # expect WHAT WANTED FOUND
  [ "$2" = "$3" ] && say "$1: $3" || { say "FAILED: $1 is '$3', not '$2'"; failed=1; }
}
until_true() { # until_true COMMAND: within a minute or two
  for _ in $(seq 1 600); do "$@" >/dev/null 2>&1 && return 0; read -rt 0.2 <> <(:); done
  say "FAILED: $* never succeeded"; failed=1
}
state() { systemctl is-active "$1"; }
answers() { (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null && echo yes; }
verify() { (cd / && sha256sum --quiet -c /judge/sums) && say "files: as written" || { say "FAILED: files differ"; failed=1; }; }
finish() { # ends the judgement
  [ $failed = 0 ] && say "verdict: passed" || say "verdict: FAILED"
  sync; systemctl poweroff; exit
}
systemctl is-system-running --wait > /dev/null
say "boot $(cat phase), $(systemctl --version | head -1), $(uname -r)"
case $(cat phase) in
1)
  try dpkg -i first.deb
  expect "tarnd.service after the installation" active "$(state tarnd.service)"
  expect "tarnd.service at boot" enabled "$(systemctl is-enabled tarnd.service)"
  expect "zfs.target" active "$(state zfs.target)"
  try zpool create tank mirror /dev/vdb /dev/vdc
  try zfs create tank/home
  try zfs create -o mountpoint=legacy tank/old
  try zfs set sharenfs=on tank/home
  try zfs create -V 100M -o tarn:shareiscsi=on tank/disk
  until_true answers 3260
  expect "NFS at port 2049" yes "$(answers 2049)"
  mkdir -p /mnt/old
  echo 'tank/old /mnt/old zfs defaults 0 0' >> /etc/fstab
  systemctl daemon-reload
  try mount /mnt/old
  head -c 20000000 /dev/urandom > /tank/home/bulk
  cp -r /etc /mnt/old/etc
  (cd / && find tank/home mnt/old -type f -print0 | xargs -0 sha256sum) > sums
  expect "OOM score of the daemon" -900 "$(cat /proc/"$(pidof tarnd)"/oom_score_adj)"
  for page in zpool zfs zdb zstream tarn tarnd; do
    try test -n "$(man -Tutf8 --warnings "$page" 2>&1 1> /dev/null | head -0; man -w "$page")"
    expect "warnings of man $page" "" "$(man --warnings -Tutf8 "$page" 2>&1 >/dev/null | head -3)"
  done
  for program in zpool zfs tarn; do
    try bash -n /usr/share/bash-completion/completions/$program
    try zsh -n /usr/share/zsh/vendor-completions/_$program
    try fish -n /usr/share/fish/vendor_completions.d/$program.fish
  done
  found=$(bash -c 'source /usr/share/bash-completion/completions/zfs; COMP_WORDS=(zfs list tank/h); COMP_CWORD=2; _tarn_zfs; echo "${COMPREPLY[*]}"')
  expect "bash completes 'zfs list tank/h'" tank/home "$found"
  found=$(fish -c 'complete -C "zpool stat"' | cut -f1)
  expect "fish completes 'zpool stat'" status "$found"
  [ $failed = 0 ] || finish
  echo 2 > phase; sync
  systemctl reboot
  ;;
2)
  expect "tarnd.service after a reboot" active "$(state tarnd.service)"
  expect "units that failed" "" "$(systemctl --failed --plain --no-legend)"
  expect "/mnt/old of /etc/fstab" zfs "$(findmnt -n -o SOURCE /mnt/old > /dev/null && echo zfs)"
  until_true answers 3260
  expect "NFS at port 2049 after a reboot" yes "$(answers 2049)"
  verify
  say "an upgrade while a program writes"
  before=$(pidof tarnd)
  (exec 3> /tank/home/log; for line in $(seq 1 100000); do echo "$line" >&3 || exit 1; read -rt 0.05 <> <(:); done) &
  writer=$!
  try dpkg -i second.deb
  expect "the daemon that serves" "$before" "$(pidof tarnd)"
  try kill -0 $writer
  try zpool status -x
  kill $writer; wait $writer 2>/dev/null
  try systemctl restart tarnd.service
  verify
  expect "/mnt/old after a restart" zfs "$(findmnt -n -o SOURCE /mnt/old > /dev/null && echo zfs)"
  say "the daemon is killed"
  kill -9 "$(pidof tarnd)"
  until_true test -S /run/tarn/tarnd.sock
  until_true test -f /tank/home/bulk
  verify
  say "a command starts the daemon"
  try systemctl stop tarnd.service
  expect "tank/home while the daemon is stopped" "" "$(ls /tank/home 2>/dev/null)"
  try zpool list tank
  expect "tarnd.service after zpool list" active "$(state tarnd.service)"
  verify
  say "the package is removed with a file open"
  exec 4< /tank/home/bulk
  try dpkg -r tarn
  exec 4<&-
  expect "the daemon" "" "$(pidof tarnd)"
  expect "mounts of pools" "" "$(findmnt -n -t fuse.zfs,fuse.tarn -o TARGET)"
  try dpkg -P tarn
  expect "its state" "" "$(ls -d /var/lib/tarn 2>/dev/null)"
  expect "its units" "" "$(ls /usr/lib/systemd/system/tarn* 2>/dev/null)"
  say "another prefix"
  try dpkg -i beside.deb
  try /opt/tarn/sbin/zpool import tank
  expect "zpool in /usr/sbin" "" "$(ls /usr/sbin/zpool 2>/dev/null)"
  (cd / && grep ' tank/' /judge/sums | sha256sum --quiet -c) && say "files: as written" || { say "FAILED: files differ"; failed=1; }
  expect "tarnd.service" active "$(state tarnd.service)"
  try /opt/tarn/sbin/zpool export tank
  finish
  ;;
esac
