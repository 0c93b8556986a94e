
Traversing all blocks to verify nothing leaked ...


	No leaks (block sum matches space maps exactly)

	bp count:                  1014
	ganged count:                 0
	bp logical:            19123200      avg:  18859
	bp physical:            8832000      avg:   8710     compression:   2.17
	bp allocated:           9510912      avg:   9379     compression:   2.01
	bp deduped:                   0    ref>1:      0   deduplication:   1.00
	bp cloned:                    0    count:      0
	Normal class:           9498624     used:  5.66%
	Embedded log class              0     used:  -nan%

	additional, non-pointer bps of type 0:        780
	Dittoed blocks on same vdev: 29

Blocks	LSIZE	PSIZE	ASIZE	  avg	 comp	%Total	Type
     -	    -	    -	    -	    -	    -	     -	unallocated
     2	  32K	   8K	  24K	  12K	 4.00	  0.26	object directory
     -	    -	    -	    -	    -	    -	     -	object array
     2	  32K	   8K	  24K	  12K	 4.00	  0.26	packed nvlist
     -	    -	    -	    -	    -	    -	     -	packed nvlist size
     -	    -	    -	    -	    -	    -	     -	bpobj
     -	    -	    -	    -	    -	    -	     -	bpobj header
     -	    -	    -	    -	    -	    -	     -	SPA space map header
     6	 768K	  24K	  72K	  12K	32.00	  0.78	SPA space map
     1	  36K	  36K	  36K	  36K	 1.00	  0.39	ZIL intent log
    43	1.88M	 172K	 364K	8.46K	11.16	  3.92	DMU dnode
     3	  12K	  12K	  28K	9.33K	 1.00	  0.30	DMU objset
     -	    -	    -	    -	    -	    -	     -	DSL directory
     -	    -	    -	    -	    -	    -	     -	DSL directory child map
     -	    -	    -	    -	    -	    -	     -	DSL dataset snap map
     -	    -	    -	    -	    -	    -	     -	DSL props
     -	    -	    -	    -	    -	    -	     -	DSL dataset
     -	    -	    -	    -	    -	    -	     -	ZFS znode
     -	    -	    -	    -	    -	    -	     -	ZFS V0 ACL
   869	14.6M	8.07M	8.21M	9.67K	 1.81	 90.48	ZFS plain file
    21	 213K	  29K	  64K	3.05K	 7.34	  0.69	ZFS directory
     2	   1K	   1K	  16K	   8K	 1.00	  0.17	ZFS master node
     -	    -	    -	    -	    -	    -	     -	ZFS delete queue
     -	    -	    -	    -	    -	    -	     -	zvol object
     -	    -	    -	    -	    -	    -	     -	zvol prop
     -	    -	    -	    -	    -	    -	     -	other uint8[]
     -	    -	    -	    -	    -	    -	     -	other uint64[]
     -	    -	    -	    -	    -	    -	     -	other ZAP
     -	    -	    -	    -	    -	    -	     -	persistent error log
     1	 128K	   4K	  12K	  12K	32.00	  0.13	SPA history
     -	    -	    -	    -	    -	    -	     -	SPA history offsets
     -	    -	    -	    -	    -	    -	     -	Pool properties
     -	    -	    -	    -	    -	    -	     -	DSL permissions
     -	    -	    -	    -	    -	    -	     -	ZFS ACL
     -	    -	    -	    -	    -	    -	     -	ZFS SYSACL
     -	    -	    -	    -	    -	    -	     -	FUID table
     -	    -	    -	    -	    -	    -	     -	FUID table size
     -	    -	    -	    -	    -	    -	     -	DSL dataset next clones
     -	    -	    -	    -	    -	    -	     -	scan work queue
     6	   3K	   1K	  16K	2.67K	 3.00	  0.17	ZFS user/group/project used
     -	    -	    -	    -	    -	    -	     -	ZFS user/group/project quota
     -	    -	    -	    -	    -	    -	     -	snapshot refcount tags
     -	    -	    -	    -	    -	    -	     -	DDT ZAP algorithm
     -	    -	    -	    -	    -	    -	     -	DDT statistics
     2	  10K	9.50K	  24K	  12K	 1.05	  0.26	System attributes
     -	    -	    -	    -	    -	    -	     -	SA master node
     2	   3K	   3K	  16K	   8K	 1.00	  0.17	SA attr registration
     4	  64K	  16K	  32K	   8K	 4.00	  0.34	SA attr layouts
     -	    -	    -	    -	    -	    -	     -	scan translations
     -	    -	    -	    -	    -	    -	     -	deduplicated block
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map
     -	    -	    -	    -	    -	    -	     -	DSL deadlist map hdr
     -	    -	    -	    -	    -	    -	     -	DSL dir clones
     -	    -	    -	    -	    -	    -	     -	bpobj subobj
     -	    -	    -	    -	    -	    -	     -	deferred free
     -	    -	    -	    -	    -	    -	     -	dedup ditto
    23	 461K	39.5K	 156K	6.78K	11.67	  1.68	other
  1014	18.2M	8.42M	9.07M	9.16K	 2.17	100.00	Total
   115	5.65M	 404K	 888K	7.72K	14.33	  9.56	Metadata Total

Block Size Histogram

  block   psize                lsize                asize
   size   Count   Size   Cum.  Count   Size   Cum.  Count   Size   Cum.
    512:     14     7K     7K     14     7K     7K      0      0      0
     1K:     11  12.5K  19.5K     11  12.5K  19.5K      0      0      0
     2K:      2  4.50K    24K      2  4.50K    24K      0      0      0
     4K:    104   418K   442K     12  49.5K  73.5K     27   108K   108K
     8K:     10  97.5K   539K      4  33.5K   107K    110  1004K  1.09M
    16K:      8   172K   711K     52   844K   951K     12   260K  1.34M
    32K:     36  1.90M  2.60M      2    80K  1.01M     36  1.90M  3.24M
    64K:      6   462K  3.05M      6   486K  1.48M      6   464K  3.70M
   128K:     43  5.38M  8.42M    131  16.4M  17.9M     43  5.38M  9.07M
   256K:      0      0  8.42M      0      0  17.9M      0      0  9.07M
   512K:      0      0  8.42M      0      0  17.9M      0      0  9.07M
     1M:      0      0  8.42M      0      0  17.9M      0      0  9.07M
     2M:      0      0  8.42M      0      0  17.9M      0      0  9.07M
     4M:      0      0  8.42M      0      0  17.9M      0      0  9.07M
     8M:      0      0  8.42M      0      0  17.9M      0      0  9.07M
    16M:      0      0  8.42M      0      0  17.9M      0      0  9.07M

