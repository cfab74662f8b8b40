; 1: map
define internal void @body(i64 %n0, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, i64 %s0_0, i64 %s1_0, i64 %s2_0) nounwind noinline {
entry:
  %v2 = icmp slt i64 0, %n0
  br i1 %v2, label %body1, label %done1
body1:
  %i1 = phi i64 [ 0, %entry ], [ %v9, %body1 ]
  %v3 = getelementptr inbounds float, ptr %p0, i64 %i1
  %v4 = load float, ptr %v3, align 4
  %v5 = getelementptr inbounds float, ptr %p1, i64 %i1
  %v6 = load float, ptr %v5, align 4
  %v7 = fadd float %v4, %v6
  %v8 = getelementptr inbounds float, ptr %p2, i64 %i1
  store float %v7, ptr %v8, align 4
  %v9 = add nuw nsw i64 %i1, 1
  %v10 = icmp slt i64 %v9, %n0
  br i1 %v10, label %body1, label %done1, !llvm.loop !0
done1:
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
  %v29 = sub nsw i64 %hi, %lo
  %v30 = mul nsw i64 %lo, %v10
  %v31 = getelementptr i8, ptr %v8, i64 %v30
  %v32 = mul nsw i64 %lo, %v19
  %v33 = getelementptr i8, ptr %v17, i64 %v32
  %v34 = mul nsw i64 %lo, %v28
  %v35 = getelementptr i8, ptr %v26, i64 %v34
  call void @body(i64 %v29, ptr %v31, ptr %v33, ptr %v35, i64 %v10, i64 %v19, i64 %v28)
  ret void
}
