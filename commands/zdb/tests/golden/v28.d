Dataset mos [META], ID 0, cr_txg 4, 162K, 59 objects
Dataset fxv28/c [ZPL], ID 64, cr_txg 33, 8.31M, 819 objects
Dataset fxv28/a@s [ZPL], ID 143, cr_txg 26, 8.31M, 819 objects
Dataset fxv28/a [ZPL], ID 139, cr_txg 5, 7.82M, 629 objects
Dataset fxv28 [ZPL], ID 51, cr_txg 1, 68K, 8 objects
Verified device_removal feature refcount of 0 is correct
Verified indirect_refcount feature refcount of 0 is correct
