Dataset mos [META], ID 0, cr_txg 4, 708K, 200 objects
Dataset fxbasic/k-blake3 [ZPL], ID 186, cr_txg 46, 904K, 199 objects
Dataset fxbasic/xdir [ZPL], ID 302, cr_txg 84, 896K, 206 objects
Dataset fxbasic/vol [ZVOL], ID 254, cr_txg 93, 1.32M, 2 objects
Dataset fxbasic/r-512 [ZPL], ID 232, cr_txg 69, 6.36M, 199 objects
Dataset fxbasic/k-sha512 [ZPL], ID 175, cr_txg 37, 904K, 199 objects
Dataset fxbasic/k-sha256 [ZPL], ID 167, cr_txg 34, 904K, 199 objects
Dataset fxbasic/k-edonr [ZPL], ID 260, cr_txg 43, 904K, 199 objects
Dataset fxbasic/c-gzip-6 [ZPL], ID 95, cr_txg 21, 808K, 199 objects
Dataset fxbasic/props [ZPL], ID 247, cr_txg 89, 128K, 7 objects
Dataset fxbasic/clone [ZPL], ID 218, cr_txg 66, 8.79M, 819 objects
Dataset fxbasic/c-zle [ZPL], ID 86, cr_txg 18, 1.07M, 199 objects
Dataset fxbasic/insens [ZPL], ID 310, cr_txg 88, 96K, 7 objects
Dataset fxbasic/k-fletcher4 [ZPL], ID 112, cr_txg 31, 904K, 199 objects
Dataset fxbasic/c-zstd-3 [ZPL], ID 103, cr_txg 24, 784K, 199 objects
Dataset fxbasic/c-off [ZPL], ID 69, cr_txg 9, 2.17M, 199 objects
Dataset fxbasic/full@before [ZPL], ID 200, cr_txg 60, 8.79M, 819 objects
Dataset fxbasic/full@after [ZPL], ID 206, cr_txg 63, 7.60M, 621 objects
Dataset fxbasic/full [ZPL], ID 268, cr_txg 49, 4.95M, 456 objects
Dataset fxbasic/c-lzjb [ZPL], ID 77, cr_txg 15, 896K, 199 objects
Dataset fxbasic/c-lz4 [ZPL], ID 146, cr_txg 12, 904K, 199 objects
Dataset fxbasic/k-skein [ZPL], ID 124, cr_txg 40, 904K, 199 objects
Dataset fxbasic/r-1m [ZPL], ID 294, cr_txg 80, 900K, 199 objects
Dataset fxbasic/k-fletcher2 [ZPL], ID 159, cr_txg 28, 904K, 199 objects
Dataset fxbasic/r-4k [ZPL], ID 286, cr_txg 76, 1.32M, 199 objects
Dataset fxbasic [ZPL], ID 54, cr_txg 1, 112K, 27 objects
Verified large_blocks feature refcount of 1 is correct
Verified large_dnode feature refcount of 24 is correct
Verified sha512 feature refcount of 1 is correct
Verified skein feature refcount of 1 is correct
Verified edonr feature refcount of 1 is correct
Verified userobj_accounting feature refcount of 24 is correct
Verified encryption feature refcount of 0 is correct
Verified project_quota feature refcount of 24 is correct
Verified redaction_bookmarks feature refcount of 0 is correct
Verified redacted_datasets feature refcount of 0 is correct
Verified bookmark_written feature refcount of 1 is correct
Verified livelist feature refcount of 1 is correct
Verified zstd_compress feature refcount of 1 is correct
Verified zilsaxattr feature refcount of 0 is correct
Verified blake3 feature refcount of 1 is correct
Verified redaction_list_spill feature refcount of 0 is correct
Verified longname feature refcount of 0 is correct
Verified large_microzap feature refcount of 0 is correct
Verified device_removal feature refcount of 0 is correct
Verified indirect_refcount feature refcount of 0 is correct
