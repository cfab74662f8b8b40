; 1: column
define internal void @body(i64 %n0, i64 %n1, ptr noalias %p0, ptr noalias %p1, ptr noalias %p2, i64 %s0_0, i64 %s0_1, i64 %s1_0, i64 %s1_1) nounwind noinline {
entry:
  %v2 = icmp slt i64 0, %n1
  br i1 %v2, label %body1, label %done1
body1:
  %i1 = phi i64 [ 0, %entry ], [ %v4, %body1 ]
  %v3 = getelementptr inbounds float, ptr %p2, i64 %i1
  store float 0x8000000000000000, ptr %v3, align 4
  %v4 = add nuw nsw i64 %i1, 1
  %v5 = icmp slt i64 %v4, %n1
  br i1 %v5, label %body1, label %done1, !llvm.loop !0
done1:
  %v7 = icmp slt i64 0, %n0
  br i1 %v7, label %body6, label %done6
body6:
  %i6 = phi i64 [ 0, %done1 ], [ %v20, %done8 ]
  %v9 = icmp slt i64 0, %n1
  br i1 %v9, label %body8, label %done8
body8:
  %i8 = phi i64 [ 0, %body6 ], [ %v18, %body8 ]
  %v10 = mul nsw i64 %i6, %s0_0
  %v11 = getelementptr i8, ptr %p0, i64 %v10
  %v12 = getelementptr inbounds float, ptr %v11, i64 %i8
  %v13 = load float, ptr %v12, align 4
  %v14 = getelementptr inbounds float, ptr %p2, i64 %i8
  %v15 = load float, ptr %v14, align 4
  %v16 = fadd reassoc float %v15, %v13
  %v17 = getelementptr inbounds float, ptr %p2, i64 %i8
  store float %v16, ptr %v17, align 4
  %v18 = add nuw nsw i64 %i8, 1
  %v19 = icmp slt i64 %v18, %n1
  br i1 %v19, label %body8, label %done8, !llvm.loop !3
done8:
  %v20 = add nuw nsw i64 %i6, 1
  %v21 = icmp slt i64 %v20, %n0
  br i1 %v21, label %body6, label %done6
done6:
  ret void
}
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 true}
!2 = !{!"llvm.loop.interleave.count", i32 4}
!3 = distinct !{!3, !4, !5}
!4 = !{!"llvm.loop.vectorize.enable", i1 true}
!5 = !{!"llvm.loop.interleave.count", i32 4}
define void @kernel(i64 %lo, i64 %hi, ptr noalias %args, ptr noalias %buffers) nounwind {
entry:
  %v1 = load i64, ptr %args, align 8
  %v2 = getelementptr inbounds i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2, align 8
  %v4 = getelementptr inbounds i64, ptr %args, i64 2
  %v5 = load i64, ptr %v4, align 8
  %v6 = getelementptr inbounds i64, ptr %args, i64 3
  %v7 = load i64, ptr %v6, align 8
  %v8 = getelementptr inbounds i64, ptr %args, i64 4
  %v9 = load i64, ptr %v8, align 8
  %v10 = getelementptr inbounds i64, ptr %args, i64 5
  %v11 = load i64, ptr %v10, align 8
  %v12 = getelementptr inbounds i64, ptr %args, i64 6
  %v13 = load i64, ptr %v12, align 8
  %v14 = getelementptr inbounds ptr, ptr %buffers, i64 %v13
  %v15 = load ptr, ptr %v14, align 8
  %v16 = getelementptr inbounds i64, ptr %args, i64 7
  %v17 = load i64, ptr %v16, align 8
  %v18 = getelementptr i8, ptr %v15, i64 %v17
  %v19 = getelementptr inbounds i64, ptr %args, i64 8
  %v20 = load i64, ptr %v19, align 8
  %v21 = getelementptr inbounds i64, ptr %args, i64 9
  %v22 = load i64, ptr %v21, align 8
  %v23 = getelementptr inbounds i64, ptr %args, i64 10
  %v24 = load i64, ptr %v23, align 8
  %v25 = getelementptr inbounds ptr, ptr %buffers, i64 %v24
  %v26 = load ptr, ptr %v25, align 8
  %v27 = getelementptr inbounds i64, ptr %args, i64 11
  %v28 = load i64, ptr %v27, align 8
  %v29 = getelementptr i8, ptr %v26, i64 %v28
  %v30 = getelementptr inbounds i64, ptr %args, i64 12
  %v31 = load i64, ptr %v30, align 8
  %v32 = getelementptr inbounds i64, ptr %args, i64 13
  %v33 = load i64, ptr %v32, align 8
  %v34 = getelementptr inbounds i64, ptr %args, i64 14
  %v35 = load i64, ptr %v34, align 8
  %v36 = getelementptr inbounds ptr, ptr %buffers, i64 %v35
  %v37 = load ptr, ptr %v36, align 8
  %v38 = getelementptr inbounds i64, ptr %args, i64 15
  %v39 = load i64, ptr %v38, align 8
  %v40 = getelementptr i8, ptr %v37, i64 %v39
  %v42 = icmp slt i64 %lo, %hi
  br i1 %v42, label %body41, label %done41
body41:
  %i41 = phi i64 [ %lo, %entry ], [ %v68, %body41 ]
  %v43 = udiv i64 %i41, %v9
  %v44 = mul nsw i64 %v43, %v9
  %v45 = sub nsw i64 %i41, %v44
  %v46 = udiv i64 %v43, %v5
  %v47 = mul nsw i64 %v46, %v5
  %v48 = sub nsw i64 %v43, %v47
  %v49 = mul nsw i64 %v48, %v7
  %v50 = mul nsw i64 %v45, %v11
  %v51 = sub nsw i64 %v1, %v49
  %v52 = call i64 @llvm.smin.i64(i64 %v7, i64 %v51)
  %v53 = sub nsw i64 %v3, %v50
  %v54 = call i64 @llvm.smin.i64(i64 %v11, i64 %v53)
  %v55 = add nsw i64 %v48, %v46
  %v56 = mul nsw i64 %v55, %v3
  %v57 = add nsw i64 %v56, %v50
  %v58 = mul nsw i64 %v57, 4
  %v59 = getelementptr i8, ptr %v40, i64 %v58
  %v60 = mul nsw i64 %v49, %v20
  %v61 = mul nsw i64 %v50, %v22
  %v62 = add nsw i64 %v60, %v61
  %v63 = getelementptr i8, ptr %v18, i64 %v62
  %v64 = mul nsw i64 %v49, %v31
  %v65 = mul nsw i64 %v50, %v33
  %v66 = add nsw i64 %v64, %v65
  %v67 = getelementptr i8, ptr %v29, i64 %v66
  call void @body(i64 %v52, i64 %v54, ptr %v63, ptr %v67, ptr %v59, i64 %v20, i64 %v22, i64 %v31, i64 %v33)
  %v68 = add nuw nsw i64 %i41, 1
  %v69 = icmp slt i64 %v68, %hi
  br i1 %v69, label %body41, label %done41
done41:
  ret void
}
