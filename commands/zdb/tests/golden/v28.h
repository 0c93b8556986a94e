
History:
2026-11-20.16:27:17 [txg:4] create pool version 28; software version 92f430b-dist; uts (none) 6.1.0-50-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-07-02) x86_64
2026-11-20.16:27:17 [txg:4] set ashift=9
2026-11-20.16:27:18 zpool create -o version=28 -o ashift=9 fxv28 mirror /share/v28/0.img /share/v28/1.img
2026-11-20.16:27:18 [txg:5] create fxv28/a (139)  
2026-11-20.16:27:18 ioctl create
    input:
        type: 2
        props:
2026-11-20.16:27:18 zfs create fxv28/a
2026-11-20.16:27:23 [txg:26] snapshot fxv28/a@s (143)  
2026-11-20.16:27:23 ioctl snapshot
    input:
        snaps:
            fxv28/a@s
        props:
2026-11-20.16:27:23 zfs snapshot fxv28/a@s
2026-11-20.16:27:25 [txg:33] clone fxv28/c (64) origin=fxv28/a@s (143)
2026-11-20.16:27:25 ioctl clone
    input:
        origin: 'fxv28/a@s'
        props:
2026-11-20.16:27:25 zfs clone fxv28/a@s fxv28/c
2026-11-20.16:27:26 zpool export fxv28
