; 1: map
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, i64 %s0_1, i64 %s1_1, i64 %s2_1) nounwind noinline {
entry:
  %v2 = icmp slt i64 0, %n1
  br i1 %v2, label %body1, label %done1
body1:
  %i1 = phi i64 [ 0, %entry ], [ %v10, %body1 ]
  %v3 = getelementptr inbounds float, ptr %p0, i64 %i1
  %v4 = load float, ptr %v3, align 4
  %v5 = mul nsw i64 %i1, %s1_1
  %v6 = getelementptr i8, ptr %p1, i64 %v5
  %v7 = load float, ptr %v6, align 4
  %v8 = fadd float %v4, %v7
  %v9 = getelementptr inbounds float, ptr %p2, i64 %i1
  store float %v8, ptr %v9, align 4
  %v10 = add nuw nsw i64 %i1, 1
  %v11 = icmp slt i64 %v10, %n1
  br i1 %v11, label %body1, label %done1, !llvm.loop !0
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
  %v4 = getelementptr inbounds i64, ptr %args, i64 2
  %v5 = load i64, ptr %v4, align 8
  %v6 = getelementptr inbounds ptr, ptr %buffers, i64 %v5
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr inbounds i64, ptr %args, i64 3
  %v9 = load i64, ptr %v8, align 8
  %v10 = getelementptr i8, ptr %v7, i64 %v9
  %v11 = getelementptr inbounds i64, ptr %args, i64 4
  %v12 = load i64, ptr %v11, align 8
  %v13 = getelementptr inbounds i64, ptr %args, i64 5
  %v14 = load i64, ptr %v13, align 8
  %v15 = getelementptr inbounds i64, ptr %args, i64 6
  %v16 = load i64, ptr %v15, align 8
  %v17 = getelementptr inbounds ptr, ptr %buffers, i64 %v16
  %v18 = load ptr, ptr %v17, align 8
  %v19 = getelementptr inbounds i64, ptr %args, i64 7
  %v20 = load i64, ptr %v19, align 8
  %v21 = getelementptr i8, ptr %v18, i64 %v20
  %v22 = getelementptr inbounds i64, ptr %args, i64 8
  %v23 = load i64, ptr %v22, align 8
  %v24 = getelementptr inbounds i64, ptr %args, i64 9
  %v25 = load i64, ptr %v24, align 8
  %v26 = getelementptr inbounds i64, ptr %args, i64 10
  %v27 = load i64, ptr %v26, align 8
  %v28 = getelementptr inbounds ptr, ptr %buffers, i64 %v27
  %v29 = load ptr, ptr %v28, align 8
  %v30 = getelementptr inbounds i64, ptr %args, i64 11
  %v31 = load i64, ptr %v30, align 8
  %v32 = getelementptr i8, ptr %v29, i64 %v31
  %v33 = getelementptr inbounds i64, ptr %args, i64 12
  %v34 = load i64, ptr %v33, align 8
  %v35 = getelementptr inbounds i64, ptr %args, i64 13
  %v36 = load i64, ptr %v35, align 8
  %v38 = icmp slt i64 %lo, %hi
  br i1 %v38, label %body37, label %done37
body37:
  %i37 = phi i64 [ %lo, %entry ], [ %v45, %body37 ]
  %v39 = mul nsw i64 %i37, %v12
  %v40 = getelementptr i8, ptr %v10, i64 %v39
  %v41 = mul nsw i64 %i37, %v23
  %v42 = getelementptr i8, ptr %v21, i64 %v41
  %v43 = mul nsw i64 %i37, %v34
  %v44 = getelementptr i8, ptr %v32, i64 %v43
  call void @body(i64 %v3, ptr %v40, ptr %v42, ptr %v44, i64 %v14, i64 %v25, i64 %v36)
  %v45 = add nuw nsw i64 %i37, 1
  %v46 = icmp slt i64 %v45, %hi
  br i1 %v46, label %body37, label %done37
done37:
  ret void
}
