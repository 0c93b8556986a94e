
Traversing all blocks to verify nothing leaked ...


	No leaks (block sum matches space maps exactly)

	bp count:                  1683
	ganged count:                 0
	bp logical:            38011392      avg:  22585
	bp physical:           26015744      avg:  15457     compression:   1.46
	bp allocated:          60063744      avg:  35688     compression:   0.63
	bp deduped:                   0    ref>1:      0   deduplication:   1.00
	bp cloned:                    0    count:      0
	Normal class:          60162048     used:  8.15%
	Embedded log class              0     used:  -nan%

	additional, non-pointer bps of type 0:        615
	Dittoed blocks on same vdev: 150

Blocks	LSIZE	PSIZE	ASIZE	  avg	 comp	%Total	Type
     -	    -	    -	    -	    -	    -	     -	unallocated
     2	  32K	   8K	  96K	  48K	 4.00	  0.16	object directory
     -	    -	    -	    -	    -	    -	     -	object array
     1	  16K	   4K	  48K	  48K	 4.00	  0.08	packed nvlist
     -	    -	    -	    -	    -	    -	     -	packed nvlist size
     -	    -	    -	    -	    -	    -	     -	bpobj
     -	    -	    -	    -	    -	    -	     -	bpobj header
     -	    -	    -	    -	    -	    -	     -	SPA space map header
     6	 768K	  24K	 288K	  48K	32.00	  0.49	SPA space map
     1	 104K	 104K	 176K	 176K	 1.00	  0.30	ZIL intent log
    77	2.95M	 308K	2.48M	33.0K	 9.82	  4.34	DMU dnode
     4	  16K	  16K	 144K	  36K	 1.00	  0.25	DMU objset
     -	    -	    -	    -	    -	    -	     -	DSL directory
     -	    -	    -	    -	    -	    -	     -	DSL directory child map
     -	    -	    -	    -	    -	    -	     -	DSL dataset snap map
     -	    -	    -	    -	    -	    -	     -	DSL props
     -	    -	    -	    -	    -	    -	     -	DSL dataset
     -	    -	    -	    -	    -	    -	     -	ZFS znode
     -	    -	    -	    -	    -	    -	     -	ZFS V0 ACL
 1.44K	31.5M	24.2M	52.5M	36.5K	 1.30	 91.73	ZFS plain file
    41	 426K	58.5K	 448K	10.9K	 7.28	  0.76	ZFS directory
     3	1.50K	1.50K	  96K	  32K	 1.00	  0.16	ZFS master node
     -	    -	    -	    -	    -	    -	     -	ZFS delete queue
     -	    -	    -	    -	    -	    -	     -	zvol object
     -	    -	    -	    -	    -	    -	     -	zvol prop
     -	    -	    -	    -	    -	    -	     -	other uint8[]
     -	    -	    -	    -	    -	    -	     -	other uint64[]
     -	    -	    -	    -	    -	    -	     -	other ZAP
     -	    -	    -	    -	    -	    -	     -	persistent error log
     1	 128K	   4K	  48K	  48K	32.00	  0.08	SPA history
     -	    -	    -	    -	    -	    -	     -	SPA history offsets
     -	    -	    -	    -	    -	    -	     -	Pool properties
     -	    -	    -	    -	    -	    -	     -	DSL permissions
     -	    -	    -	    -	    -	    -	     -	ZFS ACL
     -	    -	    -	    -	    -	    -	     -	ZFS SYSACL
     -	    -	    -	    -	    -	    -	     -	FUID table
     -	    -	    -	    -	    -	    -	     -	FUID table size
     -	    -	    -	    -	    -	    -	     -	DSL dataset next clones
     -	    -	    -	    -	    -	    -	     -	scan work queue
     9	4.50K	   1K	  64K	7.11K	 4.50	  0.11	ZFS user/group/project used
     -	    -	    -	    -	    -	    -	     -	ZFS user/group/project quota
     -	    -	    -	    -	    -	    -	     -	snapshot refcount tags
     -	    -	    -	    -	    -	    -	     -	DDT ZAP algorithm
     -	    -	    -	    -	    -	    -	     -	DDT statistics
     4	  20K	  19K	 128K	  32K	 1.05	  0.22	System attributes
     -	    -	    -	    -	    -	    -	     -	SA master node
     3	4.50K	4.50K	  96K	  32K	 1.00	  0.16	SA attr registration
     6	  96K	  24K	 192K	  32K	 4.00	  0.33	SA attr layouts
     -	    -	    -	    -	    -	    -	     -	scan translations
     -	    -	    -	    -	    -	    -	     -	deduplicated block
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map hdr
     -	    -	    -	    -	    -	    -	     -	DSL dir clones
     -	    -	    -	    -	    -	    -	     -	bpobj subobj
     -	    -	    -	    -	    -	    -	     -	deferred free
     -	    -	    -	    -	    -	    -	     -	dedup ditto
    21	 174K	  24K	 480K	22.9K	 7.25	  0.82	other
 1.64K	36.3M	24.8M	57.3M	34.9K	 1.46	100.00	Total
   182	7.53M	 672K	5.02M	28.2K	11.47	  8.76	Metadata Total

Block Size Histogram

  block   psize                lsize                asize
   size   Count   Size   Cum.  Count   Size   Cum.  Count   Size   Cum.
    512:    742   371K   371K    742   371K   371K      0      0      0
     1K:     15  17.5K   388K     15  17.5K   388K      0      0      0
     2K:      2  4.50K   393K      2  4.50K   393K      0      0      0
     4K:    155   636K  1.00M     26   120K   512K      0      0      0
     8K:     17   167K  1.17M      8    67K   580K      0      0      0
    16K:     12   232K  1.39M     88  1.40M  1.96M    759  11.9M  11.9M
    32K:     45  2.18M  3.57M      2    88K  2.05M    176  5.88M  17.7M
    64K:     11   886K  4.44M     20  1.53M  3.58M     57  4.80M  22.5M
   128K:     48  6.00M  10.4M    144  18.0M  21.6M     55  11.5M  34.1M
   256K:      7  1.87M  12.3M      7  1.87M  23.5M      7  3.06M  37.1M
   512K:      3  1.50M  13.8M      3  1.50M  25.0M      3  2.44M  39.6M
     1M:     11    11M  24.8M     11    11M  36.0M     11  17.7M  57.3M
     2M:      0      0  24.8M      0      0  36.0M      0      0  57.3M
     4M:      0      0  24.8M      0      0  36.0M      0      0  57.3M
     8M:      0      0  24.8M      0      0  36.0M      0      0  57.3M
    16M:      0      0  24.8M      0      0  36.0M      0      0  57.3M

