Dataset mos [META], ID 0, cr_txg 4, 276K, 53 objects
Dataset fxcheckpoint/a [ZPL], ID 76, cr_txg 8, 944K, 205 objects
Dataset fxcheckpoint [ZPL], ID 54, cr_txg 1, 96K, 7 objects
Verified large_blocks feature refcount of 0 is correct
Verified large_dnode feature refcount of 0 is correct
Verified sha512 feature refcount of 0 is correct
Verified skein feature refcount of 0 is correct
Verified edonr feature refcount of 0 is correct
Verified userobj_accounting feature refcount of 2 is correct
Verified encryption feature refcount of 0 is correct
Verified project_quota feature refcount of 2 is correct
Verified redaction_bookmarks feature refcount of 0 is correct
Verified redacted_datasets feature refcount of 0 is correct
Verified bookmark_written feature refcount of 0 is correct
Verified livelist feature refcount of 0 is correct
Verified zstd_compress feature refcount of 0 is correct
Verified zilsaxattr feature refcount of 1 is correct
Verified blake3 feature refcount of 0 is correct
Verified redaction_list_spill feature refcount of 0 is correct
Verified longname feature refcount of 0 is correct
Verified large_microzap feature refcount of 0 is correct
Verified device_removal feature refcount of 0 is correct
Verified indirect_refcount feature refcount of 0 is correct

Checkpointed uberblock found:
	magic = 0000000000bab10c
	version = 5000
	txg = 14
	guid_sum = 13021832852132958597
	timestamp = 1795190568 UTC = Fri Nov 20 16:02:48 2026
	bp = DVA[0]=<0:14e000:1000> DVA[1]=<0:10bb000:1000> DVA[2]=<0:2050000:1000> [L0 DMU objset] fletcher4 uncompressed unencrypted LE contiguous unique triple size=1000L/1000P birth=12L/12P fill=54 cksum=00000002f38cf0c4:00000b55133b3a53:0015c7841b513b3d:1bef3914a9af3efe
	mmp_magic = 00000000a11cea11
	mmp_delay = 0
	mmp_valid = 0
	checkpoint_txg = 14
	raidz_reflow state=0 off=0

