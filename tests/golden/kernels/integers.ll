; 1: map
define internal void @body(i64 %n0, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, i64 %s0_0, i64 %s1_0, i64 %s2_0, i64 %c0, i64 %c1, i64 %c2, i64 %c3, i64 %c4, i64 %c5) nounwind noinline {
entry:
  %v1 = trunc i64 %c0 to i32
  %v2 = trunc i64 %c1 to i32
  %v3 = trunc i64 %c2 to i32
  %v4 = trunc i64 %c3 to i32
  %v5 = trunc i64 %c4 to i32
  %v6 = trunc i64 %c5 to i8
  %v7 = trunc i8 %v6 to i1
  %v9 = icmp slt i64 0, %n0
  br i1 %v9, label %body8, label %done8
body8:
  %i8 = phi i64 [ 0, %entry ], [ %v56, %body8 ]
  %v10 = getelementptr inbounds i32, ptr %p0, i64 %i8
  %v11 = load i32, ptr %v10, align 4
  %v12 = mul i32 %v11, %v1
  %v13 = getelementptr inbounds i32, ptr %p1, i64 %i8
  %v14 = load i32, ptr %v13, align 4
  %v15 = add i32 %v12, %v14
  %v16 = icmp eq i32 %v2, 0
  %v17 = icmp eq i32 %v2, -1
  %v18 = or i1 %v16, %v17
  %v19 = select i1 %v18, i32 1, i32 %v2
  %v20 = sdiv i32 %v15, %v19
  %v21 = icmp eq i32 %v2, -1
  %v22 = sub i32 0, %v15
  %v23 = select i1 %v21, i32 %v22, i32 %v20
  %v24 = icmp eq i32 %v2, 0
  %v25 = select i1 %v24, i32 -1, i32 %v23
  %v26 = icmp eq i32 %v2, 0
  %v27 = icmp eq i32 %v2, -1
  %v28 = or i1 %v26, %v27
  %v29 = select i1 %v28, i32 1, i32 %v2
  %v30 = srem i32 %v15, %v29
  %v31 = icmp eq i32 %v2, 0
  %v32 = select i1 %v31, i32 %v15, i32 %v30
  %v33 = icmp ne i32 %v32, %v3
  %v34 = icmp slt i32 %v15, 0
  %v35 = select i1 %v34, i32 -1, i32 %v15
  %v36 = icmp sgt i32 %v15, 0
  %v37 = select i1 %v36, i32 1, i32 %v35
  %v38 = icmp ne i32 %v37, %v4
  %v39 = and i1 %v38, %v33
  %v40 = sub i32 %v25, %v4
  %v41 = select i1 %v39, i32 %v40, i32 %v25
  %v42 = icmp eq i32 %v5, 0
  %v43 = icmp eq i32 %v5, -1
  %v44 = or i1 %v42, %v43
  %v45 = select i1 %v44, i32 1, i32 %v5
  %v46 = srem i32 %v41, %v45
  %v47 = icmp eq i32 %v5, 0
  %v48 = select i1 %v47, i32 %v41, i32 %v46
  %v49 = icmp slt i32 %v48, %v3
  %v50 = icmp ne i1 %v49, %v7
  %v51 = icmp ne i32 %v48, %v3
  %v52 = and i1 %v50, %v51
  %v53 = add i32 %v48, %v5
  %v54 = select i1 %v52, i32 %v53, i32 %v48
  %v55 = getelementptr inbounds i32, ptr %p2, i64 %i8
  store i32 %v54, ptr %v55, align 4
  %v56 = add nuw nsw i64 %i8, 1
  %v57 = icmp slt i64 %v56, %n0
  br i1 %v57, label %body8, label %done8, !llvm.loop !0
done8:
  ret void
}
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 true}
!2 = !{!"llvm.loop.interleave.count", i32 4}
define void @kernel(i64 %lo, i64 %hi, ptr noalias %args, ptr noalias %buffers) nounwind {
entry:
  %v1 = load i64, ptr %args, align 8
  %v2 = getelementptr inbounds i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2, align 8
  %v4 = getelementptr inbounds ptr, ptr %buffers, i64 %v3
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr inbounds i64, ptr %args, i64 2
  %v7 = load i64, ptr %v6, align 8
  %v8 = getelementptr i8, ptr %v5, i64 %v7
  %v9 = getelementptr inbounds i64, ptr %args, i64 3
  %v10 = load i64, ptr %v9, align 8
  %v11 = getelementptr inbounds i64, ptr %args, i64 4
  %v12 = load i64, ptr %v11, align 8
  %v13 = getelementptr inbounds ptr, ptr %buffers, i64 %v12
  %v14 = load ptr, ptr %v13, align 8
  %v15 = getelementptr inbounds i64, ptr %args, i64 5
  %v16 = load i64, ptr %v15, align 8
  %v17 = getelementptr i8, ptr %v14, i64 %v16
  %v18 = getelementptr inbounds i64, ptr %args, i64 6
  %v19 = load i64, ptr %v18, align 8
  %v20 = getelementptr inbounds i64, ptr %args, i64 7
  %v21 = load i64, ptr %v20, align 8
  %v22 = getelementptr inbounds ptr, ptr %buffers, i64 %v21
  %v23 = load ptr, ptr %v22, align 8
  %v24 = getelementptr inbounds i64, ptr %args, i64 8
  %v25 = load i64, ptr %v24, align 8
  %v26 = getelementptr i8, ptr %v23, i64 %v25
  %v27 = getelementptr inbounds i64, ptr %args, i64 9
  %v28 = load i64, ptr %v27, align 8
  %v29 = getelementptr inbounds i64, ptr %args, i64 10
  %v30 = load i64, ptr %v29, align 8
  %v31 = getelementptr inbounds i64, ptr %args, i64 11
  %v32 = load i64, ptr %v31, align 8
  %v33 = getelementptr inbounds i64, ptr %args, i64 12
  %v34 = load i64, ptr %v33, align 8
  %v35 = getelementptr inbounds i64, ptr %args, i64 13
  %v36 = load i64, ptr %v35, align 8
  %v37 = getelementptr inbounds i64, ptr %args, i64 14
  %v38 = load i64, ptr %v37, align 8
  %v39 = getelementptr inbounds i64, ptr %args, i64 15
  %v40 = load i64, ptr %v39, align 8
  %v41 = sub nsw i64 %hi, %lo
  %v42 = mul nsw i64 %lo, %v10
  %v43 = getelementptr i8, ptr %v8, i64 %v42
  %v44 = mul nsw i64 %lo, %v19
  %v45 = getelementptr i8, ptr %v17, i64 %v44
  %v46 = mul nsw i64 %lo, %v28
  %v47 = getelementptr i8, ptr %v26, i64 %v46
  call void @body(i64 %v41, ptr %v43, ptr %v45, ptr %v47, i64 %v10, i64 %v19, i64 %v28, i64 %v30, i64 %v32, i64 %v34, i64 %v36, i64 %v38, i64 %v40)
  ret void
}
