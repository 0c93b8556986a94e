
Traversing all blocks to verify nothing leaked ...


	No leaks (block sum matches space maps exactly)

	bp count:                   296
	ganged count:                 0
	bp logical:             5209088      avg:  17598
	bp physical:             912896      avg:   3084     compression:   5.71
	bp allocated:           1368064      avg:   4621     compression:   3.81
	bp deduped:                   0    ref>1:      0   deduplication:   1.00
	bp cloned:                    0    count:      0
	Normal class:           2129920     used:  2.54%
	Embedded log class              0     used:  -nan%

	additional, non-pointer bps of type 0:        196
	Dittoed blocks on same vdev: 64

Blocks	LSIZE	PSIZE	ASIZE	  avg	 comp	%Total	Type
     -	    -	    -	    -	    -	    -	     -	unallocated
     2	  32K	   8K	  24K	  12K	 4.00	  1.80	object directory
     -	    -	    -	    -	    -	    -	     -	object array
     1	  16K	   4K	  12K	  12K	 4.00	  0.90	packed nvlist
     -	    -	    -	    -	    -	    -	     -	packed nvlist size
     -	    -	    -	    -	    -	    -	     -	bpobj
     -	    -	    -	    -	    -	    -	     -	bpobj header
     -	    -	    -	    -	    -	    -	     -	SPA space map header
     5	 640K	  20K	  60K	  12K	32.00	  4.49	SPA space map
     1	  20K	  20K	  20K	  20K	 1.00	  1.50	ZIL intent log
    26	1.61M	 104K	 228K	8.77K	15.85	 17.07	DMU dnode
     3	  12K	  12K	  28K	9.33K	 1.00	  2.10	DMU objset
     -	    -	    -	    -	    -	    -	     -	DSL directory
     -	    -	    -	    -	    -	    -	     -	DSL directory child map
     -	    -	    -	    -	    -	    -	     -	DSL dataset snap map
     -	    -	    -	    -	    -	    -	     -	DSL props
     -	    -	    -	    -	    -	    -	     -	DSL dataset
     -	    -	    -	    -	    -	    -	     -	ZFS znode
     -	    -	    -	    -	    -	    -	     -	ZFS V0 ACL
   182	2.10M	 646K	 704K	3.87K	 3.33	 52.69	ZFS plain file
    21	 178K	  21K	  48K	2.29K	 8.45	  3.59	ZFS directory
     2	   1K	   1K	  16K	   8K	 1.00	  1.20	ZFS master node
     -	    -	    -	    -	    -	    -	     -	ZFS delete queue
     -	    -	    -	    -	    -	    -	     -	zvol object
     -	    -	    -	    -	    -	    -	     -	zvol prop
     -	    -	    -	    -	    -	    -	     -	other uint8[]
     -	    -	    -	    -	    -	    -	     -	other uint64[]
     -	    -	    -	    -	    -	    -	     -	other ZAP
     -	    -	    -	    -	    -	    -	     -	persistent error log
     1	 128K	   4K	  12K	  12K	32.00	  0.90	SPA history
     -	    -	    -	    -	    -	    -	     -	SPA history offsets
     -	    -	    -	    -	    -	    -	     -	Pool properties
     -	    -	    -	    -	    -	    -	     -	DSL permissions
     -	    -	    -	    -	    -	    -	     -	ZFS ACL
     -	    -	    -	    -	    -	    -	     -	ZFS SYSACL
     -	    -	    -	    -	    -	    -	     -	FUID table
     -	    -	    -	    -	    -	    -	     -	FUID table size
     -	    -	    -	    -	    -	    -	     -	DSL dataset next clones
     -	    -	    -	    -	    -	    -	     -	scan work queue
     6	   3K	   1K	  16K	2.67K	 3.00	  1.20	ZFS user/group/project used
     -	    -	    -	    -	    -	    -	     -	ZFS user/group/project quota
     -	    -	    -	    -	    -	    -	     -	snapshot refcount tags
     -	    -	    -	    -	    -	    -	     -	DDT ZAP algorithm
     -	    -	    -	    -	    -	    -	     -	DDT statistics
     2	  10K	9.50K	  24K	  12K	 1.05	  1.80	System attributes
     -	    -	    -	    -	    -	    -	     -	SA master node
     2	   3K	   3K	  16K	   8K	 1.00	  1.20	SA attr registration
     4	  64K	  16K	  32K	   8K	 4.00	  2.40	SA attr layouts
     -	    -	    -	    -	    -	    -	     -	scan translations
     -	    -	    -	    -	    -	    -	     -	deduplicated block
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map hdr
     -	    -	    -	    -	    -	    -	     -	DSL dir clones
     -	    -	    -	    -	    -	    -	     -	bpobj subobj
     -	    -	    -	    -	    -	    -	     -	deferred free
     -	    -	    -	    -	    -	    -	     -	dedup ditto
    13	 170K	22.5K	  96K	7.38K	 7.53	  7.19	other
   296	4.97M	 892K	1.30M	4.51K	 5.71	100.00	Total
    79	3.06M	 236K	 560K	7.09K	13.33	 41.92	Metadata Total

Block Size Histogram

  block   psize                lsize                asize
   size   Count   Size   Cum.  Count   Size   Cum.  Count   Size   Cum.
    512:     10     5K     5K     10     5K     5K      0      0      0
     1K:      6  7.50K  12.5K      6  7.50K  12.5K      0      0      0
     2K:      2  4.50K    17K      2  4.50K    17K      0      0      0
     4K:     64   263K   280K     14    63K    80K     14    56K    56K
     8K:      4  33.5K   314K      3    26K   106K     69   636K   692K
    16K:      6   128K   442K     28   456K   562K      9   192K   884K
    32K:      5   220K   662K      0      0   562K      5   220K  1.08M
    64K:      3   230K   892K      6   459K  1021K      3   232K  1.30M
   128K:      0      0   892K     31  3.88M  4.87M      0      0  1.30M
   256K:      0      0   892K      0      0  4.87M      0      0  1.30M
   512K:      0      0   892K      0      0  4.87M      0      0  1.30M
     1M:      0      0   892K      0      0  4.87M      0      0  1.30M
     2M:      0      0   892K      0      0  4.87M      0      0  1.30M
     4M:      0      0   892K      0      0  4.87M      0      0  1.30M
     8M:      0      0   892K      0      0  4.87M      0      0  1.30M
    16M:      0      0   892K      0      0  4.87M      0      0  1.30M


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

